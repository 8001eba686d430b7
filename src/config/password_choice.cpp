#include "config/password_choice.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/password_command.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "config/options.hpp"
#include "config/values.hpp"

namespace dlock {
namespace {

std::string read_password(const std::string& path) {
  std::string content = read_whole(path, longest_password);
  if (content.ends_with('\n')) content.pop_back();
  if (content.empty()) throw_usage("the password in " + escaped(path) + " is empty");
  return content;
}

/// An error of `read` names the source of `given`.
Password::Read reader_of(const SourcedValue& given, Password::Read read) {
  return [given, read = std::move(read)](const CallOptions& call_options) {
    try {
      return read(call_options);
    } catch (const Error& fault) {
      if (fault.kind() == ErrorKind::interrupted) throw;
      given.refuse(fault.what());
    }
  };
}

Password password_from(const SourcedValue& command) {
  return Password(reader_of(command, password_command(command.text)));
}

}  // namespace

Password password_in(const SourcedValue& file, std::vector<std::string>& warnings) {
  // A pipe can be read only once, and a descriptor may be reused later.
  std::error_code error;
  const auto path = std::filesystem::absolute(absolute_in_file(file).text, error).string();
  const bool once = path.starts_with("/dev/") || path.starts_with("/proc/") ||
                    !std::filesystem::is_regular_file(path, error);
  auto read = reader_of(
      file, [path = once ? file.text : path](const CallOptions&) { return read_password(path); });
  Password password = once ? Password(read({})) : Password(std::move(read));
  const auto warning = exposed_warning(file.text, "a password");
  if (!warning.empty()) warnings.push_back(warning);
  return password;
}

std::optional<Password> OnePassword::find(const std::optional<Password>& own) {
  const bool overrides =
      !sources_.in_flags("password-file").empty() || !sources_.in_flags("password-command").empty();
  if (own && !overrides) return own;
  if (!std::exchange(read_, true)) found_ = search();
  return found_;
}

std::optional<Password> OnePassword::search() {
  const auto first_of = [&](const std::vector<SourcedValue>& file,
                            const std::vector<SourcedValue>& command) -> std::optional<Password> {
    if (!file.empty() && !command.empty()) {
      command.front().refuse("excludes " + file.front().place);
    }
    if (!file.empty()) return password_in(file.front(), warnings);
    if (!command.empty()) return password_from(command.front());
    return std::nullopt;
  };
  auto found = first_of(sources_.in_flags("password-file"), sources_.in_flags("password-command"));
  if (!found) {
    found = first_of(sources_.in_variable(option("password-file").variable),
                     sources_.in_variable(option("password-command").variable));
  }
  if (found) return found;
  auto values = sources_.in_variable(option("password").variable);
  if (values.empty() && redis_) values = sources_.in_variable("REDISCLI_AUTH");
  if (!values.empty()) return values.front().text;
  for (const ConfigFile& file : sources_.files()) {
    for (const auto& [name, given] : file.entries) {
      if (name == "password") return given.text;
      if (name == "password-command") return password_from(given);
      if (name == "password-file") return password_in(given, warnings);
    }
  }
  return std::nullopt;
}

}  // namespace dlock
