// A results folder: what was measured and where it comes from. Written row by row; never edited by hand.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/provenance.hpp"
#include "experiments/harness/csv.hpp"

namespace fwht::harness {

/// What one run of a program adds to a folder.
struct RunInfo {
  std::string program;
  std::string grid, grid_text;  ///< empty where the program has none
  std::vector<std::uint64_t> seeds;
  std::vector<std::string> variants;  ///< in ladder order
};

class ResultsFolder {
 public:
  /// A new folder. Throws BadRequest when it is there already or cannot be written.
  static ResultsFolder create(const std::filesystem::path& path, const Provenance& provenance,
                              const RunInfo& run);

  /// One more run in a folder that is there: its rows stay untouched. Throws BadRequest when it is no results
  /// folder, has another format_version, or comes from other sources or another device.
  static ResultsFolder resume(const std::filesystem::path& path, const Provenance& provenance,
                              const RunInfo& run);

  /// `resume_path` when it is given, else a new folder: `output`, or without a name
  /// experiments/results/<time>_<commit>_<device>.
  static ResultsFolder create_or_resume(const std::string& output, const std::string& resume_path,
                                        const Provenance& provenance, const RunInfo& run);

  /// `resume_path` when it is given, else `output`: continued when it is a results folder, else made.
  /// Neither: experiments/results/<time>_<commit>_<device>.
  static ResultsFolder open(const std::string& output, const std::string& resume_path,
                            const Provenance& provenance, const RunInfo& run);

  const std::filesystem::path& path() const { return path_; }

  /// "results.csv", "accuracy.csv" ... (table_schema); started when first asked for.
  CsvWriter& table(const std::string& name);
  std::vector<CsvRow> rows(const std::string& name) const { return read_csv(path_ / name); }

  /// Writes the end of this run into context.json. Without it the run counts as unfinished.
  void finish();

 private:
  ResultsFolder(std::filesystem::path path, std::string context);
  void write_file(const char* name, const std::string& text) const;

  std::filesystem::path path_;
  std::string context_;  // the JSON text; kept as text so that no JSON header is needed here
  std::map<std::string, std::unique_ptr<CsvWriter>> tables_;
};

}  // namespace fwht::harness
