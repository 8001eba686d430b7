#include "config/sources.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/escape.hpp"

namespace dlock {
namespace {

std::optional<std::string> home_directory(const Environment& environment) {
  auto home = environment("HOME");
  if (home && !home->empty()) return home;
  // No thread runs yet.
  const passwd* entry = getpwuid(geteuid());  // NOLINT(concurrency-mt-unsafe)
  if (entry == nullptr || *entry->pw_dir == '\0') return std::nullopt;
  return entry->pw_dir;
}

/// HOME may be another user's: sudo, su and setpriv can keep it. What that user keeps to himself is
/// no setting of this one.
ConfigFile read_home_file(const std::string& home) {
  const std::string path = home + "/.config/dlock.conf";
  struct stat status {};
  const bool is_closed = access(path.c_str(), R_OK) != 0 && errno == EACCES;
  if (!is_closed || stat(home.c_str(), &status) != 0 || status.st_uid == geteuid()) {
    return read_config_file(path, true);
  }
  ConfigFile none;
  none.warnings.push_back("HOME is " + escaped(home) + ", the home of another user: " +
                          escaped(path) + " cannot be read and is not used");
  return none;
}

}  // namespace

void SourcedValue::refuse(const std::string& why) const {
  throw Error(trouble, place + ": " + why);
}

Sources::Sources(const CommandLine& line, const Environment& environment,
                 const std::string& system_file)
    : line_(line), environment_(environment) {
  const auto chosen = of("config");
  if (chosen.empty()) {
    const auto home = home_directory(environment_);
    if (home) files_.push_back(read_home_file(*home));
    files_.push_back(read_config_file(system_file, true));
    return;
  }
  const SourcedValue& first = chosen.front().front();
  try {
    files_.push_back(read_config_file(first.text, false));
  } catch (const Error& fault) {
    throw fault.reworded(first.place + ": " + fault.what());
  }
}

std::vector<std::vector<SourcedValue>> Sources::of(std::string_view name) const {
  std::vector<std::vector<SourcedValue>> places{in_flags(name)};
  const Option& found = option(name);
  const bool elsewhere = found.has_other_places(*line_.command);
  if (found.variable != nullptr && elsewhere) places.push_back(in_variable(found.variable));
  if (found.has(in_files) && elsewhere) {
    for (auto& each : entries_of(name)) places.push_back(std::move(each));
  }
  std::erase_if(places, [](const auto& place) { return place.empty(); });
  return places;
}

std::vector<SourcedValue> Sources::in_flags(std::string_view name) const {
  std::vector<SourcedValue> values;
  for (auto& text : line_.values(name)) {
    values.push_back({std::move(text), option(name).shown(), ErrorKind::usage});
  }
  return values;
}

std::vector<SourcedValue> Sources::in_variable(const std::string& name) const {
  auto text = environment_(name);
  const bool names_servers = name == option("server").variable;
  if (!text || (text->empty() && !names_servers)) return {};
  const SourcedValue value{std::move(*text), name, ErrorKind::usage};
  if (value.text.empty()) value.refuse("the variable is empty: unset it, or give it a value");
  return {value};
}

std::vector<std::vector<SourcedValue>> Sources::entries_of(std::string_view name) const {
  std::vector<std::vector<SourcedValue>> places;
  for (const ConfigFile& file : files_) {
    std::vector<SourcedValue> values;
    for (const FileEntry& entry : file.entries) {
      if (entry.name == name) values.push_back(entry.value);
    }
    if (!values.empty()) places.push_back(std::move(values));
  }
  return places;
}

void refuse_flags(const Sources& sources, std::initializer_list<const char*> names,
                  const char* why) {
  for (const char* name : names) {
    for (const SourcedValue& given : sources.in_flags(name)) given.refuse(why);
  }
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    // Settings are read before there is a second thread.
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

}  // namespace dlock
