// Tests teams of threads: every part of a loop runs once, and the number of threads is reported.
#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "common/threads.hpp"

using namespace steelyard;
using namespace steelyard::tests;

TEST(team_calls_every_member_once) {
    for (unsigned wanted = 0; wanted <= 4; ++wanted) {
        std::vector<std::atomic<int>> calls(5);
        std::atomic<unsigned> size{0};
        run_team(wanted, [&](unsigned thread, unsigned n, SpinBarrier& barrier) {
            ++calls[thread];
            barrier.wait();
            size = n;
        });
        CHECK(size >= 1 && size <= std::max(wanted, 1u), wanted);
        for (unsigned thread = 0; thread < 5; ++thread) CHECK(calls[thread] == (thread < size), wanted, thread);
    }
}

TEST(team_loops_run_all_parts_and_rethrow_exceptions) {
    for (unsigned wanted = 1; wanted <= 3; ++wanted) {
        TeamLoops team;
        std::size_t n_loops = 0, n_errors = 0, total = 0;
        run_team(wanted, [&](unsigned thread, unsigned n, SpinBarrier& barrier) {
            team.serve(thread, n, barrier, [&] {
                for (std::size_t loop = 0; loop < 200; ++loop) {
                    team.prepare();
                    std::vector<std::size_t> parts(team.n_threads(), 0);
                    team.run([&](unsigned part) { parts[part] += loop; });
                    n_loops += 1;
                    for (const std::size_t part : parts) total += part == loop;
                    total -= parts.size() - 1;
                }
                try {
                    team.run([](unsigned) { throw std::runtime_error("expected"); });
                } catch (const std::runtime_error&) {
                    ++n_errors;
                }
            });
        });
        CHECK(n_loops == 200 && total == 200 && n_errors == 1, wanted);
    }
}
