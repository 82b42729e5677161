// SIGINT and SIGTERM: a program stops between two measurements, with whole rows on disk.
#pragma once

namespace fwht::harness {

/// From here on the first SIGINT or SIGTERM is only noted, and said on stderr; a second one ends the process at once.
void watch_for_interrupt();

/// The signal that came, or 0.
int interrupted_by();

}  // namespace fwht::harness
