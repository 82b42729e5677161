// Who carries out a transform in the accuracy experiments: a variant on this machine, or its emulation on the
// host. The two are never the same row of a table.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/variant.hpp"
#include "common/host/names.hpp"
#include "experiments/harness/slices.hpp"

namespace fwht::harness {

enum class Source {
  measured,      ///< the variant ran on this machine
  emulated,      ///< bit for bit on the host, with the tensor core of an H200
  emulated_a100  ///< the same with the tensor core of an A100: a prediction
};
inline constexpr Names<Source, 3> kSources{"source",
                                           {{Source::measured, "measured"},
                                            {Source::emulated, "emulated"},
                                            {Source::emulated_a100, "emulated_a100"}}};
constexpr std::string_view name_of(Source source) {
  return kSources.of(source);
}

class Performer {
 public:
  /// `device`: this machine. Emulations ask for support on the described device instead.
  Performer(const Variant& variant, Source source, const DeviceInfo& device);

  const Variant& variant() const { return *variant_; }
  std::string_view name() const { return variant_->name; }
  Source source() const { return source_; }
  bool on_device() const { return source_ == Source::measured && variant_->memory == Memory::device; }

  /// Also refuses what has no emulation.
  Support supports(const Problem& problem) const;

  struct Result {
    Numerics numerics;
    std::vector<std::byte> output;
    bool guards_intact = true;  ///< nothing was written in front of or behind the data
  };
  /// Whether it runs here and writes codes itself.
  bool encodes(const Problem& problem) const;
  struct CodedResult {
    std::vector<std::byte> codes, scales;
  };
  /// One launch of the encoded problem.
  CodedResult encode(const Problem& problem, const std::vector<std::byte>& input, float tensor_scale,
                     Workspace& workspace) const;
  /// Transforms contiguous rows in place, on a copy. Throws what the plan throws.
  Result run(const Problem& problem, const std::vector<std::byte>& input, Workspace& workspace) const;

 private:
  const Variant* variant_;
  Source source_;
  const DeviceInfo* device_;
  DeviceInfo described_;
};

/// One performer for each variant. Variants that run on this machine are measured; with `emulate`, and always
/// for device variants where there is no device, those with an emulation are emulated. `a100` adds
/// predictions for those whose tensor-core stages differ there.
struct PerformerChoice {
  bool emulate = false;  ///< emulate device variants although there is a device
  bool a100 = false;
};
std::vector<Performer> performers(const std::vector<const Variant*>& variants, const DeviceInfo& device,
                                  PerformerChoice choice = {});

/// What the experiments of fwht_studies are given.
struct StudySetup {
  const DeviceInfo& device;
  const std::vector<Performer>& performers;
  Workspace& workspace;
};

}  // namespace fwht::harness
