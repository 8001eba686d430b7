#include "s3/aws_credentials.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/moment.hpp"
#include "base/process.hpp"
#include "base/program.hpp"
#include "base/text.hpp"
#include "http/http_client.hpp"
#include "http/json_text.hpp"

namespace dlock {
namespace {

using Found = std::optional<AwsCredentials>;
using Settings = std::map<std::string, std::string>;

[[noreturn]] void throw_none(const std::string& why, Cause cause = Cause::password_missing) {
  throw Error(ErrorKind::denied, why, cause);
}

std::string token_in(const std::string& path) {
  std::string token = line_in(path);
  if (token.empty()) throw_none("cannot read a token in " + escaped(path));
  return token;
}

/// A value in a query: only letters, digits and `-._~` are safe (RFC 3986, section 2.3).
std::string in_query(const std::string& value) {
  return percent_encoded(value, "!\"#$&'()*+,/:;<=>?@[\\]^`{|}");
}

/// The body of the answer to an unsigned request. Throws Error{denied} if it is refused.
std::string fetch(HttpClient& http, const std::string& url, std::vector<std::string> fields,
                  const CallOptions& call_options, const char* method = "GET") {
  constexpr long http_ok = 200, http_server_error = 500;
  const std::string from = "AWS credentials: " + escaped(url.substr(0, url.find('?')));
  std::vector<HttpCall> calls{
      {.to = {url}, .body = {}, .method = method, .fields = std::move(fields)}};
  http.send(calls, call_options);
  const HttpCall& done = calls.front();
  if (done.end != HttpCall::End::answered) throw done.no_answer(from);
  if (done.status == http_ok) return done.answer;
  const std::string said = escaped(xml_text(done.answer, "Message"));
  const std::string why =
      from + " answers " + std::to_string(done.status) + (said.empty() ? "" : ": " + said);
  if (done.status >= http_server_error) throw_unavailable(why, Cause::other_reply);
  throw_none(why, Cause::password_wrong);
}

/// Exchanges the token of a pod for the credentials of its role.
Found of_web_identity(HttpClient& http, const std::string& region,
                      const CallOptions& call_options) {
  const std::string file = variable("AWS_WEB_IDENTITY_TOKEN_FILE"), role = variable("AWS_ROLE_ARN");
  if (file.empty() || role.empty()) return std::nullopt;
  const std::string session = variable("AWS_ROLE_SESSION_NAME");
  std::string sts = variable("AWS_ENDPOINT_URL_STS");
  if (sts.empty()) sts = "https://sts." + region + ".amazonaws.com";
  const std::string answer = fetch(
      http,
      sts + "/?Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=" + in_query(role) +
          "&RoleSessionName=" + in_query(session.empty() ? "dlock" : session) +
          "&WebIdentityToken=" + in_query(token_in(file)),
      {}, call_options);
  AwsCredentials found{xml_text(answer, "AccessKeyId"), xml_text(answer, "SecretAccessKey"),
                       xml_text(answer, "SessionToken"),
                       parse_moment(xml_text(answer, "Expiration"), wall_now())};
  if (found.id.empty()) throw_none("AWS credentials: " + escaped(sts) + " gives none");
  return found;
}

/// The settings of a profile: those in the file of credentials go before those in the other.
Settings settings_of(const std::string& profile) {
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
bool needs_aws_program(const Settings& settings) {
  return std::any_of(settings.begin(), settings.end(), [](const auto& each) {
    const std::string& name = each.first;
    return name.starts_with("sso_") || name == "role_arn" || name == "login_session";
  });
}

/// The credentials of the profile that AWS_PROFILE names, or of `default`.
Found of_profile(const CallOptions& call_options) {
  const std::string chosen = variable("AWS_PROFILE");
  const std::string profile = chosen.empty() ? "default" : chosen;
  const std::string shown = "the AWS profile " + escaped(profile);
  auto settings = settings_of(profile);
  if (settings.empty() && !chosen.empty()) throw_none(shown + " does not exist");
  AwsCredentials own{settings["aws_access_key_id"], settings["aws_secret_access_key"],
                     settings["aws_session_token"]};
  if (!own.id.empty() && !own.secret.empty()) return own;
  std::vector<std::string> program{"/bin/sh", "-c", settings["credential_process"]};
  if (needs_aws_program(settings)) {
    program = {"aws",       "configure", "export-credentials", "--format", "process",
               "--profile", profile};
  }
  if (program.back().empty()) return std::nullopt;
  try {
    return credentials_in(output_of(program, call_options), "its program");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::usage) throw_none(shown + ": " + error.what());
    throw error.reworded(shown + ": " + error.what());
  }
}

Found of_container(HttpClient& http, const CallOptions& call_options) {
  std::string url = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  const std::string path = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  if (!path.empty()) url = "http://169.254.170.2" + path;
  if (url.empty()) return std::nullopt;
  std::string token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!file.empty()) token = token_in(file);
  std::vector<std::string> fields;
  if (!token.empty()) fields.push_back("Authorization: " + token);
  return credentials_in(fetch(http, url, fields, call_options), "the container's role");
}

/// The role of an EC2 instance. A host elsewhere has no such address, or nothing that answers.
Found of_instance(HttpClient& http, const CallOptions& call_options) {
  if (variable("AWS_EC2_METADATA_DISABLED") == "true") return std::nullopt;
  std::string service = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (service.empty()) service = "http://169.254.169.254";
  const CallOptions soon = at_most(milliseconds(1000), call_options);
  const std::string roles = service + "/latest/meta-data/iam/security-credentials/";
  try {
    const std::string token = fetch(http, service + "/latest/api/token",
                                    {"X-aws-ec2-metadata-token-ttl-seconds: 21600"}, soon, "PUT");
    const auto get = [&](const std::string& url) {
      return fetch(http, url, {"X-aws-ec2-metadata-token: " + token}, soon);
    };
    const std::string role = get(roles);
    return credentials_in(get(roles + role.substr(0, role.find('\n'))), "the instance's role");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    return std::nullopt;
  }
}

AwsCredentials find(const std::string& region, const CallOptions& call_options) {
  AwsCredentials own{variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"),
                     variable("AWS_SESSION_TOKEN")};
  if (!own.id.empty() && !own.secret.empty()) return own;
  HttpClient http(std::nullopt);
  if (auto found = of_web_identity(http, region, call_options)) return *found;
  if (auto found = of_profile(call_options)) return *found;
  if (auto found = of_container(http, call_options)) return *found;
  if (auto found = of_instance(http, call_options)) return *found;
  throw_none("no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE");
}

}  // namespace

Settings ini_section(std::string_view text, std::string_view section) {
  Settings found;
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
  AwsCredentials found{text_at(fields, "/AccessKeyId"), text_at(fields, "/SecretAccessKey"),
                       text_at(fields, "/SessionToken") + text_at(fields, "/Token"),
                       parse_moment(text_at(fields, "/Expiration"), wall_now())};
  if (found.id.empty() || found.secret.empty()) throw_none(source + " gives no credentials");
  return found;
}

const AwsCredentials& AwsCredentialChain::current(const CallOptions& call_options) {
  constexpr std::chrono::minutes early{5};
  if (known_ && (!known_->expires || wall_now() + early < *known_->expires)) return *known_;
  try {
    known_ = find(region_, {call_options.deadline, call_options.cancel_fd});
  } catch (const Error&) {
    // The present ones are still good for some minutes.
    if (!known_ || wall_now() >= *known_->expires) throw;
  }
  return *known_;
}

}  // namespace dlock
