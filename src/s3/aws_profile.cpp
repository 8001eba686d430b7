#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/moment.hpp"
#include "base/process.hpp"
#include "base/program.hpp"
#include "base/text.hpp"
#include "s3/aws_credentials.hpp"

// Credentials from the files of AWS's command line program, and from programs that these name.

namespace dlock {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const auto first = std::min(text.find_first_not_of(blanks), text.size());
  return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

/// The settings of a profile: those in the file of credentials go before those in the other.
std::map<std::string, std::string> settings_of(const std::string& profile) {
  const auto text_of = [](const char* name, const char* usual) {
    const std::string path = variable(name);
    return file_text(path.empty() ? variable("HOME") + usual : path);
  };
  auto found = ini_section(text_of("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials"), profile);
  found.merge(ini_section(text_of("AWS_CONFIG_FILE", "/.aws/config"),
                          profile == "default" ? profile : "profile " + profile));
  return found;
}

/// Whether only AWS's own program can make credentials of these settings.
bool needs_aws_program(const std::map<std::string, std::string>& settings) {
  return std::any_of(settings.begin(), settings.end(), [](const auto& each) {
    const std::string& name = each.first;
    return name.starts_with("sso_") || name == "role_arn" || name == "login_session";
  });
}

}  // namespace

std::map<std::string, std::string> ini_section(std::string_view text, std::string_view section) {
  std::map<std::string, std::string> found;
  bool inside = false;
  while (!text.empty()) {
    const auto line = take_until(text, '\n');
    auto rest = trimmed(line);
    if (rest.starts_with('[')) inside = trimmed(rest.substr(1, rest.find(']') - 1)) == section;
    const bool is_setting = inside && line.find('=') != std::string_view::npos &&
                            std::string_view(" \t#;[").find(line.front()) == std::string_view::npos;
    if (!is_setting) continue;
    const std::string name(trimmed(take_until(rest, '=')));
    found[name] = trimmed(rest);
  }
  return found;
}

AwsCredentials credentials_in(const std::string& json, const std::string& source) {
  const auto fields = nlohmann::json::parse(json, nullptr, false);
  const auto text = [&](const char* name) -> std::string {
    if (!fields.is_object()) return "";
    const auto found = fields.find(name);
    return found != fields.end() && found->is_string() ? found->get<std::string>() : "";
  };
  AwsCredentials found{text("AccessKeyId"), text("SecretAccessKey"), text("SessionToken"),
                       parse_moment(text("Expiration"), wall_now())};
  if (found.session_token.empty()) found.session_token = text("Token");
  if (!found.id.empty() && !found.secret.empty()) return found;
  throw Error(ErrorKind::denied, source + " gives no credentials", Cause::password_missing);
}

std::optional<AwsCredentials> credentials_of_profile(const CallOptions& call_options) {
  const std::string chosen = variable("AWS_PROFILE");
  const std::string profile = chosen.empty() ? "default" : chosen;
  const std::string shown = "the AWS profile " + escaped(profile);
  auto settings = settings_of(profile);
  if (settings.empty() && !chosen.empty()) {
    throw Error(ErrorKind::denied, shown + " does not exist", Cause::password_missing);
  }
  if (settings.contains("aws_access_key_id") && settings.contains("aws_secret_access_key")) {
    return AwsCredentials{settings["aws_access_key_id"], settings["aws_secret_access_key"],
                          settings["aws_session_token"]};
  }
  std::vector<std::string> program{"/bin/sh", "-c", settings["credential_process"]};
  if (needs_aws_program(settings)) {
    program = {"aws",       "configure", "export-credentials", "--format", "process",
               "--profile", profile};
  }
  if (program.back().empty()) return std::nullopt;
  try {
    return credentials_in(output_of(program, call_options), shown);
  } catch (const Error& error) {
    throw error.reworded(shown + ": " + error.what());
  }
}

}  // namespace dlock
