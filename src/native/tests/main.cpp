#include <cstdio>
#include <cstring>

#include "check.hpp"

namespace steelyard::tests {

namespace {
int failures = 0;  // number of failed checks of the running test
}

std::vector<Test>& all_tests() {
    static std::vector<Test> tests;
    return tests;
}

void fail(const char* file, int line, const std::string& what) {
    constexpr int shown = 5;
    if (++failures <= shown) std::printf("%s:%d: %s\n", file, line, what.c_str());
    if (failures == shown) std::printf("(further failures of this test are not shown)\n");
}

// Runs every test whose name contains `filter`; returns the number of failed tests.
int run_all(const char* filter) {
    int passed = 0, failed = 0;
    for (const Test& test : all_tests()) {
        if (!std::strstr(test.name, filter)) continue;
        failures = 0;
        test.run();
        ++(failures ? failed : passed);
        if (failures) std::printf("FAILED %s\n", test.name);
    }
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed;
}

}  // namespace steelyard::tests

int main(int argc, char** argv) { return steelyard::tests::run_all(argc > 1 ? argv[1] : "") != 0; }
