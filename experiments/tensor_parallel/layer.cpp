#include "experiments/tensor_parallel/layer.hpp"

#include <fmt/format.h>

#include <cmath>

#include "common/contract/scale_layout.hpp"
#include "common/host/error.hpp"
#include "variants/library/sharded/moves.hpp"

namespace fwht::tensor_parallel {
namespace {

std::size_t bytes_of_f16(std::int64_t elements) {
  return static_cast<std::size_t>(elements * 2);
}

LinearProblem linear_problem(const GptqWeights& weights, std::int64_t m) {
  return problem_of(weights, m, Dtype::f16);
}

/// Why this rank cannot take part; empty when it can.
std::string why_not(const MlpProblem& problem, const Share& share, const Communicator& communicator,
                    const LayerKernels& kernels, const DeviceInfo& device) {
  try {
    validate(problem);
    if (communicator.size() != problem.ranks) {
      return fmt::format("the communicator has {} ranks, the layer is for {}", communicator.size(),
                         problem.ranks);
    }
    if (kernels.product->memory != communicator.memory()) {
      return fmt::format("the variant {} does not work on the memory of this communicator",
                         kernels.product->name);
    }
    for (const GptqWeights* weights : {&share.up, &share.down}) {
      const LinearProblem linear = linear_problem(*weights, problem.m);
      fwht::validate(linear);
      if (const Support support = kernels.product->supports(linear, device); !support)
        return fmt::format("{} on {}: {}", kernels.product->name, to_string(linear), support.why_not);
    }
  } catch (const BadRequest& error) {
    return error.what();
  }
  return "";
}

}  // namespace

RankLayer::RankLayer(const MlpProblem& problem, const Share& share, Communicator& communicator,
                     const LayerKernels& kernels, const DeviceInfo& device, Activation activation,
                     TimeLimit limit)
    : problem_(problem), communicator_(communicator), activation_(activation) {
  agree(communicator, {to_string(problem), why_not(problem, share, communicator, kernels, device)}, limit);
  up_ = plan(*kernels.product, linear_problem(share.up, problem.m), device);
  down_ = plan(*kernels.product, linear_problem(share.down, problem.m), device);
  if (problem.rotation != Rotation::none) {
    rotation_ = std::make_unique<sharded::ShardedPlan>(rotation_of(problem), communicator, *kernels.transform,
                                                       device, limit);
  }
  const Memory memory = communicator.memory();
  tokens_ = Buffer(memory, bytes_of_f16(problem.m * problem.shape.k1));
  output_ = Buffer(memory, bytes_of_f16(problem.m * problem.shape.n2));
  picked_count_ = static_cast<std::int64_t>(share.picked.size());
  if (picked_count_ > 0) {
    picked_ = Buffer(memory, share.picked.size() * sizeof share.picked[0]);
    picked_.upload(share.picked.data(), share.picked.size() * sizeof share.picked[0]);
  }
  build_pieces();
}
RankLayer::~RankLayer() = default;

Buffer& RankLayer::scratch(std::int64_t elements) {
  scratch_.push_back(std::make_unique<Buffer>(communicator_.memory(), bytes_of_f16(elements)));
  return *scratch_.back();
}

namespace {

std::int64_t stride_of(const LinearPlan& plan) {
  return round_up(plan.packed_bytes(), kPartAlignment);
}

}  // namespace

std::shared_ptr<const LoadedWeights> RankLayer::load(const Share& share, int copies) const {
  const auto weights = std::make_shared<LoadedWeights>();
  const auto fill = [&](const LinearPlan& plan, const GptqWeights& from, Buffer& to, std::int64_t& stride) {
    stride = stride_of(plan);
    std::vector<std::byte> packed = plan.pack(from);
    packed.resize(static_cast<std::size_t>(stride));
    to = Buffer(communicator_.memory(), static_cast<std::size_t>(copies * stride));
    to.upload(packed.data(), packed.size());
    to.tile(packed.size());
  };
  fill(*up_, share.up, weights->up, weights->up_stride);
  fill(*down_, share.down, weights->down, weights->down_stride);
  return weights;
}

bool RankLayer::fits(const LoadedWeights& weights) const {
  return weights.up_stride == stride_of(*up_) && weights.down_stride == stride_of(*down_);
}

void RankLayer::set_tokens(const std::vector<std::uint16_t>& tokens) {
  tokens_.upload(tokens.data(), bytes_of_f16(static_cast<std::int64_t>(tokens.size())));
}

void RankLayer::build_pieces() {
  const Memory memory = communicator_.memory();
  const std::int64_t m = problem_.m, shard = problem_.shard(), n1 = problem_.shape.n1;
  const auto add = [&](const char* name, std::function<void(int, Stream)> enqueue) {
    pieces_.push_back({name, std::move(enqueue)});
  };

  // Of the products, which follow each other.
  const std::int64_t most = std::max(up_->workspace_bytes(), down_->workspace_bytes());
  Buffer* workspace = &scratch((most + 1) / 2);
  // h of this rank: m x shard.
  Buffer* hidden = &scratch(m * shard * (problem_.shape.gated ? 2 : 1));
  add("gemm_up", [this, hidden, workspace, most](int layer, Stream stream) {
    const auto* packed = static_cast<const std::byte*>(weights_->up.data()) + layer * weights_->up_stride;
    up_->execute({tokens_.data(), packed, hidden->data(), workspace->data(), most}, stream);
  });
  if (problem_.shape.gated) {
    Buffer* activated = &scratch(m * shard);
    add("activation", [this, memory, hidden, activated, m, shard](int, Stream stream) {
      activate(memory, activation_, hidden->data(), activated->data(), m, shard, stream);
    });
    hidden = activated;
  }

  // What W_down's rows meet: m x down_->problem().k.
  const bool gathers = problem_.ranks > 1 && (problem_.algorithm == Algorithm::naive ||
                                              problem_.algorithm == Algorithm::naive_fused);
  std::int64_t width = shard;  // of a part of what is picked from
  if (gathers) {
    Buffer* gathered = &scratch(m * n1);
    add("all_gather", [this, hidden, gathered, m, shard](int, Stream stream) {
      communicator_.all_gather(hidden->data(), gathered->data(), m * shard * 2, stream);
    });
    hidden = gathered;
  }
  if (picked_count_ > 0) {
    Buffer* permuted = &scratch(m * picked_count_);
    const char* name = problem_.algorithm == Algorithm::naive ? "permute" : "pick";
    add(name, [this, memory, hidden, permuted, m, width](int, Stream stream) {
      sharded::pick_columns(memory, hidden->data(), permuted->data(),
                            static_cast<const std::int32_t*>(picked_.data()), m, picked_count_, width,
                            stream);
    });
    hidden = permuted;
    if (problem_.algorithm == Algorithm::naive && problem_.ranks > 1) {
      Buffer* chunk = &scratch(m * shard);
      add("chunk", [this, memory, permuted, chunk, m, shard, n1](int, Stream stream) {
        const auto* mine = static_cast<const std::byte*>(permuted->data()) + communicator_.rank() * shard * 2;
        sharded::take_chunk(memory, mine, chunk->data(), m, n1 * 2, shard * 2, stream);
      });
      hidden = chunk;
    }
  }
  if (rotation_) {
    Buffer* rotated = &scratch(m * shard);
    const bool exchanges = problem_.ranks > 1 && problem_.rotation != Rotation::blocks &&
                           problem_.rotation != Rotation::block_diagonal;
    if (!exchanges || problem_.rotation == Rotation::all_to_all) {
      add("transform", [this, hidden, rotated](int, Stream stream) {
        rotation_->transform_shard(hidden->data(), rotated->data(), stream);
      });
    }
    if (rotation_->packs()) add("pack", [this](int, Stream stream) { rotation_->pack(stream); });
    if (exchanges) {
      const bool by_rows = rotation_->problem().exchange == sharded::Exchange::rows;
      add(problem_.rotation == Rotation::gather || by_rows ? "all_gather" : "all_to_all",
          [this, hidden](int, Stream stream) { rotation_->exchange(hidden->data(), stream); });
      if (problem_.rotation == Rotation::all_to_all && by_rows) {
        Buffer *sent = &scratch(m * shard), *received = &scratch(m * shard);
        references_.push_back({"all_to_all", [this, sent, received, m, shard](int, Stream stream) {
                                 communicator_.all_to_all(sent->data(), received->data(),
                                                          m * shard * 2 / problem_.ranks, stream);
                               }});
      }
      add(problem_.rotation == Rotation::gather ? "transform_rows" : "add_signs",
          [this, rotated](int, Stream stream) { rotation_->complete(rotated->data(), stream); });
    }
    hidden = rotated;
  }

  add("gemm_down", [this, hidden, workspace, most](int layer, Stream stream) {
    const auto* packed = static_cast<const std::byte*>(weights_->down.data()) + layer * weights_->down_stride;
    down_->execute({hidden->data(), packed, output_.data(), workspace->data(), most}, stream);
  });
  if (problem_.ranks > 1) {
    add("all_reduce", [this, m](int, Stream stream) {
      communicator_.all_reduce(output_.data(), m * problem_.shape.n2, Dtype::f16, stream);
    });
  }
}

void RankLayer::enqueue(int layer, Stream stream, bool reduce) const {
  for (const Piece& piece : pieces_) {
    if (reduce || piece.name != "all_reduce") piece.enqueue(layer, stream);
  }
}

std::vector<std::uint16_t> RankLayer::output() const {
  std::vector<std::uint16_t> values(static_cast<std::size_t>(problem_.m * problem_.shape.n2));
  output_.download(values.data(), values.size() * 2);
  return values;
}

void RankLayer::poison() {
  output_.poison();
  for (const auto& buffer : scratch_)
    buffer->poison();
}

void activate(Memory memory, Activation activation, const void* in, void* out, std::int64_t rows,
              std::int64_t width, Stream stream) {
  if (memory == Memory::device) return activate_on_device(activation, in, out, rows, width, stream);
  const auto* from = static_cast<const std::uint16_t*>(in);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < width; ++i) {
      const float gate = f16_to_float(from[row * 2 * width + i]),
                  up = f16_to_float(from[row * 2 * width + width + i]);
      const float act = activation == Activation::silu ? gate / (1.0F + std::exp(-gate)) : gate;
      static_cast<std::uint16_t*>(out)[row * width + i] = float_to_f16(act * up);
    }
  }
}

}  // namespace fwht::tensor_parallel
