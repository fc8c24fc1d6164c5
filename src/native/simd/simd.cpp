#include "simd/simd.hpp"

#include <atomic>
#include <cstdlib>

#include "common/compiler.hpp"

namespace steelyard {

namespace baseline {
extern const Loops loops;
}
#ifdef STEELYARD_X86_64
namespace avx2 {
extern const Loops loops;
}
namespace avx512 {
extern const Loops loops;
}
#endif

namespace {

std::vector<const Loops*> supported() {
    std::vector<const Loops*> found{&baseline::loops};
#ifdef STEELYARD_X86_64
    if (processor_has_avx2()) found.push_back(&avx2::loops);
    if (processor_has_avx2() && processor_has_avx512()) found.push_back(&avx512::loops);
#endif
    return found;
}

const Loops* find_level(const std::string& name) {
    for (const Loops* level : supported())
        if (name == level->name) return level;
    return nullptr;
}

const Loops* initial_level() {
    // An unknown name or an unsupported level selects the best supported level.
    if (const char* wanted = std::getenv("STEELYARD_SIMD"))
        if (const Loops* level = find_level(wanted)) return level;
    return supported().back();
}

std::atomic<const Loops*>& current() {
    static std::atomic<const Loops*> level{initial_level()};
    return level;
}

}  // namespace

const Loops& loops() { return *current().load(std::memory_order_relaxed); }

std::vector<std::string> available_levels() {
    std::vector<std::string> names;
    for (const Loops* level : supported()) names.emplace_back(level->name);
    return names;
}

bool use_level(const std::string& name) {
    const Loops* level = find_level(name);
    if (level) current().store(level, std::memory_order_relaxed);
    return level != nullptr;
}

}  // namespace steelyard
