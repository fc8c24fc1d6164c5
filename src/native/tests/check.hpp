// Test framework: TEST registers a function whose name states the expected behaviour.
// CHECK records a failure and continues.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "simd/simd.hpp"

namespace steelyard::tests {

struct Test {
    const char* name;
    void (*run)();
};

std::vector<Test>& all_tests();
void fail(const char* file, int line, const std::string& what);

struct Registration {
    Registration(const char* name, void (*run)()) { all_tests().push_back({name, run}); }
};

// Joins values to a message that shows the parameters of a failed check in a loop.
template <class... Parts>
std::string text(const Parts&... parts) {
    std::string joined;
    [[maybe_unused]] const auto add = [&](const auto& part) {
        if constexpr (requires { std::to_string(part); })
            joined += std::to_string(part);
        else
            joined += part;
        joined += ' ';
    };
    (add(parts), ...);
    return joined;
}

template <class T>
std::vector<T> random_values(std::size_t n, unsigned seed, double offset = 0.0) {
    std::mt19937 bits(seed);
    std::normal_distribution<double> normal;
    std::vector<T> values(n);
    for (T& value : values) value = static_cast<T>(normal(bits) + offset);
    return values;
}

// Runs body(level) with the whole process on each supported SIMD level; the best level is last.
template <class Body>
void on_every_level(Body&& body) {
    for (const std::string& level : available_levels()) {
        use_level(level);
        body(level);
    }
}

}  // namespace steelyard::tests

#define TEST(name)                                                                \
    static void name();                                                           \
    static const steelyard::tests::Registration registration_##name(#name, name); \
    static void name()

#define CHECK(condition, ...)                                                                                  \
    do {                                                                                                       \
        if (!(condition))                                                                                      \
            steelyard::tests::fail(__FILE__, __LINE__, #condition "  " + steelyard::tests::text(__VA_ARGS__)); \
    } while (false)
