// NCCL, loaded when it is asked for: a program that needs one GPU needs no libnccl.
// Looked for, first to last: the file that the environment variable FWHT_NCCL_LIBRARY names, the one that the
// build was given (-DFWHT_NCCL_LIBRARY=...), libnccl.so.2 as the loader finds it (the system's, or the one
// that PyTorch has loaded already).
// No variable of NCCL is set here: NCCL_NVLS_ENABLE=0 and the like are the user's and stay as they are.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/host/communicator.hpp"

struct ncclComm;  // what ncclComm_t points to; declared here so that no NCCL header is needed

namespace fwht::nccl {

/// Empty when NCCL can be called, else one sentence: "built without NCCL (FWHT_NCCL=OFF)", "libnccl.so.2 not
/// found: ...", or a version that is too old.
std::string why_not();

/// As NCCL counts: 22809 for 2.28.9. Throws BadRequest with why_not().
int version();
/// "2.28.9".
std::string version_text(int version);
/// The environment's variables that start with NCCL_, sorted: name and value.
std::vector<std::pair<std::string, std::string>> variables();

/// What the ranks of a group have in common: made by one of them, handed to the others.
using UniqueId = std::array<char, 128>;
UniqueId make_unique_id();

/// Names a rank's device and group for the set-up.
struct Rank {
  int rank = 0, size = 1;
  int device = 0;  ///< CUDA ordinal; no other rank of the group may have the same one
};

/// A new communicator of this rank on its device. All ranks call it with the same id, each from its own
/// thread or process. Throws BadRequest with why_not(), for a rank outside 0 .. size - 1 or a device that
/// this machine does not have. Throws std::runtime_error where not all ranks have come within `limit` (NCCL's
/// own thread then stays behind in that call, so the process should end soon), and for NCCL's own errors.
/// Where `interrupted` has a reason, that is thrown instead, also up to two seconds after such an error.
/// Graphs that captured the communicator's work are destroyed before it is.
std::unique_ptr<Communicator> connect(const UniqueId& id, const Rank& rank, TimeLimit limit,
                                      Interruption interrupted = {});

/// The same over a communicator that the caller made (ncclCommInitRank, torch.distributed ...) and destroys.
/// It should have been used before: NCCL connects ranks at their first exchange, and waits for them inside
/// the call, where no limit reaches; connect() has done that. Where waiting ends with an error, it is being
/// aborted, and must not be used or destroyed. Throws BadRequest when it has not `size` ranks.
std::unique_ptr<Communicator> adopt(ncclComm* communicator, int size, Interruption interrupted = {});

}  // namespace fwht::nccl
