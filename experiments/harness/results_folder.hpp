// A results folder: what was measured and where it comes from. Written row by row; never edited by hand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/host/provenance.hpp"
#include "experiments/harness/csv.hpp"
#include "experiments/harness/grid.hpp"

namespace fwht::harness {

/// Held by the program that writes a folder, until it ends in whatever way; a second program is refused.
class FolderLock {
 public:
  /// Throws BadRequest when another program holds it, or when the file system knows no locks.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  int directory_ = -1;
};

/// What one run of a program adds to a folder.
struct RunInfo {
  std::string program;
  std::string grid, grid_text;  ///< empty where the program has none
  std::vector<std::uint64_t> seeds;
  std::vector<std::string> variants;  ///< in ladder order
  /// Of programs that run over several ranks: version of NCCL, and its variables with their values.
  std::vector<std::pair<std::string, std::string>> communication = {};
  /// Of a folder that goes on, table by table: throws BadRequest for rows that this run cannot stand beside.
  /// Nothing has changed then.
  std::function<void(const std::string& table, const std::vector<CsvRow>& rows)> accept = {};
};

class ResultsFolder {
 public:
  /// A new folder, or an empty one. Throws BadRequest when something is there already or it cannot be
  /// written.
  static ResultsFolder create(const std::filesystem::path& path, const Provenance& provenance,
                              const RunInfo& run);

  /// One more run in a folder that is there: its rows stay untouched, half a last line of a killed run is cut
  /// off. Throws BadRequest when it is no results folder, another program writes it, it has another
  /// format_version, comes from other sources, another build, device, driver or host, or a file is not what
  /// the last run left (row counts and hashes).
  static ResultsFolder resume(const std::filesystem::path& path, const Provenance& provenance,
                              const RunInfo& run);

  /// `resume_path` when it is given, else a new folder: `output`, or without a name
  /// results/<time>_<commit>_<device>, with _2, _3 ... after it where that is taken.
  static ResultsFolder create_or_resume(const std::string& output, const std::string& resume_path,
                                        const Provenance& provenance, const RunInfo& run);

  /// `resume_path` when it is given, else `output`: continued when it is a results folder, else made.
  /// Neither: as above.
  static ResultsFolder open(const std::string& output, const std::string& resume_path,
                            const Provenance& provenance, const RunInfo& run);

  const std::filesystem::path& path() const { return path_; }

  /// "results.csv", "accuracy.csv" ... (table_schema); started when first asked for.
  CsvWriter& table(const std::string& name);
  /// Without the rows that it has, for a run that makes all of them again.
  void start_anew(const std::string& name);
  /// Its rows so far. Throws BadRequest with file, line, column and value for what the schema does not allow.
  std::vector<CsvRow> rows(const std::string& name) const;

  /// Writes the end of this run into context.json, with the row count and the hash of every table. Without it
  /// the run counts as unfinished. Throws std::runtime_error when the disk takes no more.
  void finish();

 private:
  ResultsFolder(std::filesystem::path path, FolderLock lock, std::string context);
  static ResultsFolder begin(const std::filesystem::path& path, const Provenance& provenance,
                             const RunInfo& run);

  std::filesystem::path path_;
  FolderLock lock_;
  std::string context_;  // the JSON text; kept as text so that no JSON header is needed here
  std::map<std::string, std::unique_ptr<CsvWriter>> tables_;
};

/// The grid of the last run of `program` in a folder. Throws BadRequest for no results folder, and where that
/// run had no grid or single problems.
Grid recorded_grid(const std::filesystem::path& folder, const std::string& program);

/// `argv`, and behind it the words by which the last run of `program` in a folder chose what to measure and
/// how: those of `options`, "--variant", with their values, without the options that `argv` names itself.
/// Throws BadRequest for no results folder.
std::vector<std::string> with_recorded_choices(const std::filesystem::path& folder,
                                               const std::string& program,
                                               std::span<const std::string_view> options,
                                               std::span<const char* const> argv);

/// The same as a program takes them.
std::vector<const char*> pointers_to(const std::vector<std::string>& words);

/// Every problem that the runs of `program` in a folder were asked for, by grids and one by one, whatever
/// their other options left of them. Throws BadRequest for no results folder.
std::vector<Problem> recorded_problems(const std::filesystem::path& folder, const std::string& program);

/// The command that goes on with a folder: that of `argv`, with --resume in place of --output and --resume.
std::string command_to_resume(int argc, const char* const* argv, const std::filesystem::path& folder);

/// The body of a program that writes a folder. SIGINT, SIGTERM and failures say how to go on; `body` returns
/// between two measurements once interrupted_by() is set. Returns the exit code: that of `body`, or 128 + the
/// signal.
int write_folder(ResultsFolder& folder, int argc, const char* const* argv, const std::function<int()>& body);

}  // namespace fwht::harness
