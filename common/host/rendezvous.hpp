// How processes of one run find each other and hear of each other's end: the variables that torchrun sets,
// and a TCP connection between rank 0 and every other rank.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
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

/// Rank 0's message on every rank; then what becomes of the other ranks. Rank 0 listens at place.port and
/// takes one connection of every other rank, which try until it listens. These connections stay open: the
/// system closes those of a process that is killed, and that names its rank.
class RankLines {
 public:
  /// Throws BadRequest where the address is unknown or two processes claim one rank or the sizes differ,
  /// std::runtime_error where not all ranks come within `limit`.
  RankLines(const RankPlace& place, const Message& message, TimeLimit limit);
  /// Tells the others that this rank is done, unless fail() has told them more.
  ~RankLines();
  RankLines(const RankLines&) = delete;
  RankLines& operator=(const RankLines&) = delete;

  /// Rank 0's.
  const Message& message() const;

  /// Why the run is over, the same sentence on every rank: "rank 2 has ended" of a process that was killed,
  /// "rank 2: <why>" of one that called fail(). Empty where nothing is known. Does not wait. Rank 0 hears of
  /// every rank, and tells the others when it asks here.
  std::string reason();
  /// Tells the others why this rank ends.
  void fail(const std::string& why);

 private:
  class Lines;
  std::unique_ptr<Lines> lines_;
};

}  // namespace fwht
