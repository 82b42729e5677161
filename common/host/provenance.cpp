#include "common/host/provenance.hpp"

#include <cctype>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "build_info.hpp"

namespace fwht {

BuildRecord this_build() {
  namespace info = build_info;
  return {info::kVersion, info::kCommit,   info::kSourcesHash, info::kBuildType, info::kDirty,
          info::kCxx,     info::kCxxFlags, info::kCuda,        info::kCudaFlags};
}

std::string without_folders(const std::string& argument) {
  const std::size_t start = argument.starts_with('/') ? 0 : argument.find("=/") + 1;  // npos + 1 = 0
  if (start == 0 && !argument.starts_with('/')) return argument;
  const std::filesystem::path path = argument.substr(start);
  const std::filesystem::path last = path.has_filename() ? path.filename() : path.parent_path().filename();
  return argument.substr(0, start) + last.string();
}

Provenance gather_provenance(int argc, const char* const* argv, const DeviceInfo& device) {
  Provenance provenance{this_build(), device, {}, utc_now()};
  for (int i = 0; i < argc; ++i)
    provenance.argv.push_back(without_folders(argv[i]));
  return provenance;
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string slug(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (!out.empty() && out.back() == '-')
    out.pop_back();
  return out;
}

std::string results_folder_name(const Provenance& provenance) {
  std::string time = provenance.utc_start;
  std::erase_if(time, [](char c) { return c == '-' || c == ':'; });
  const DeviceInfo& device = provenance.device;
  return time + "_" + provenance.build.commit.substr(0, 7) + "_" +
         slug(device.has_cuda() ? device.name : device.host_name);
}

}  // namespace fwht
