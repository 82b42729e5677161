// How processes of one run find each other: the variables that torchrun sets, and 128 bytes from rank 0 to
// all others over TCP.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "common/host/communicator.hpp"

namespace fwht {

/// One process's place in a run of several.
struct RankPlace {
  int rank = 0, size = 1;
  int local_rank = 0;   ///< among the processes of this host: its CUDA device
  std::string address;  ///< of rank 0: a host name or number
  int port = 0;
};

/// Whether the environment has RANK and WORLD_SIZE: this process is one rank of several.
bool launched_as_rank();

/// From RANK, WORLD_SIZE, LOCAL_RANK (RANK where it is missing), MASTER_ADDR (127.0.0.1), MASTER_PORT.
/// Throws BadRequest for a variable that is missing or no number, and for a rank outside 0 .. size - 1.
RankPlace place_from_environment();

using Message = std::array<char, 128>;

/// Rank 0's message, on every rank. Rank 0 listens at place.port and answers one connection of every other
/// rank; these try until it listens. Throws BadRequest where the address is unknown or two processes claim
/// one rank or the sizes differ, std::runtime_error where not all ranks come within `limit`.
Message share_from_rank_0(const RankPlace& place, const Message& message, TimeLimit limit);

}  // namespace fwht
