// The main function of every test program, for those that have something to do before.
#pragma once

namespace fwht {

/// What a test program returns when nothing failed and everything that was selected was skipped: ctest counts
/// that as skipped (SKIP_RETURN_CODE in cmake/targets.cmake), not as passed.
inline constexpr int kEverythingSkipped = 77;

/// RUN_ALL_TESTS, which must have been initialised. 1 also where a filter selects no test at all.
int run_all_tests();

}  // namespace fwht
