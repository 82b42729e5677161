// One rank's part of the MLP as a list of pieces: enqueued one behind the other they are the layer, alone
// they are what the layer's time is made of. The same over NCCL and over host memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/contract/linear/variant.hpp"
#include "common/device/memory.hpp"
#include "common/host/communicator.hpp"
#include "experiments/tensor_parallel/mlp.hpp"
#include "variants/library/sharded/sharded.hpp"

namespace fwht::tensor_parallel {

/// Of one layer in a row of layers, each with weights of its own.
struct Piece {
  std::string name;
  std::function<void(int layer, Stream stream)> enqueue;
};

/// Who computes: the linear layer, and the local part of the rotation.
struct LayerKernels {
  const LinearVariant* product = nullptr;
  const Variant* transform = nullptr;
};

/// Between the projections: gated layers compute gate * up, or silu(gate) * up.
enum class Activation { product, silu };

/// Packed weights of a row of layers, in the memory of the communicator.
struct LoadedWeights {
  Buffer up, down;
  std::int64_t up_stride = 0, down_stride = 0;  ///< bytes from one layer to the next
};

class RankLayer {
 public:
  /// All ranks must call, with the same problem; what is wrong on one of them is thrown as BadRequest on
  /// every one. `up` and `down`: the shapes of what the rank holds (Share). Keeps a reference to the
  /// communicator.
  RankLayer(const MlpProblem& problem, const Share& share, Communicator& communicator,
            const LayerKernels& kernels, const DeviceInfo& device, Activation activation, TimeLimit limit);
  ~RankLayer();

  /// Packs the rank's weights as the plans read them and lays `copies` of them side by side.
  std::shared_ptr<const LoadedWeights> load(const Share& share, int copies) const;
  /// Whether weights that another m has loaded have the size that this one reads. (Whether they have its
  /// layout, the check says.)
  bool fits(const LoadedWeights& weights) const;
  void use(std::shared_ptr<const LoadedWeights> weights) { weights_ = std::move(weights); }

  /// X, m x k1 fp16 patterns, in the order that the up projection expects.
  void set_tokens(const std::vector<std::uint16_t>& tokens);

  /// In order. The last one is the all-reduce, in place on the output; without ranks there is none.
  const std::vector<Piece>& pieces() const { return pieces_; }
  /// No part of the layer, but what a rotation over ranks is measured by: the all-to-all of one shard, where
  /// the layer exchanges in another way.
  const std::vector<Piece>& references() const { return references_; }
  /// The whole layer, or all but the all-reduce.
  void enqueue(int layer, Stream stream, bool reduce = true) const;

  /// m x n2 fp16 patterns.
  std::vector<std::uint16_t> output() const;
  void poison();

 private:
  void build_pieces();
  Buffer& scratch(std::int64_t elements);

  MlpProblem problem_;
  Communicator& communicator_;
  Activation activation_;
  std::unique_ptr<LinearPlan> up_, down_;
  std::unique_ptr<sharded::ShardedPlan> rotation_;
  std::shared_ptr<const LoadedWeights> weights_;
  std::vector<std::unique_ptr<Buffer>> scratch_;
  Buffer tokens_, output_, picked_;
  std::int64_t picked_count_ = 0;
  std::vector<Piece> pieces_, references_;
};

/// out[row][i] = act(in[row][i]) * in[row][width + i], i < width: fp32, rounded once to fp16.
void activate(Memory memory, Activation activation, const void* in, void* out, std::int64_t rows,
              std::int64_t width, Stream stream);
/// The device half of activate.
void activate_on_device(Activation activation, const void* in, void* out, std::int64_t rows,
                        std::int64_t width, Stream stream);

// The graphs of many layers that all ranks replay at once; std::runtime_error in a build without CUDA.

/// Captures `enqueue` into a graph (collectives included), replays it `replays` times behind one small
/// all-reduce each, so that all ranks start together, and returns the microseconds of each replay on this
/// rank. All ranks must call. Waits at most `limit`. Throws CudaError, and std::runtime_error as
/// Communicator::finish.
std::vector<double> time_together(Communicator& communicator, const std::function<void(Stream)>& enqueue,
                                  int replays, TimeLimit limit);

/// Runs `enqueue` once on a stream of its own, outside any graph, and waits for it.
void run_once(Communicator& communicator, const std::function<void(Stream)>& enqueue, TimeLimit limit);

}  // namespace fwht::tensor_parallel
