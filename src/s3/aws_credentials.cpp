#include "s3/aws_credentials.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/moment.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "s3/s3_xml.hpp"

namespace dlock {
namespace {

constexpr long http_ok = 200, http_server_error = 500;

[[noreturn]] void throw_none(const std::string& why, Cause cause = Cause::password_missing) {
  throw Error(ErrorKind::denied, why, cause);
}

/// The first line of a file; a token may have a line end after it.
std::string token_in(const std::string& path) {
  const std::string text = file_text(path);
  if (text.empty()) throw_none("cannot read a token in " + escaped(path));
  return text.substr(0, text.find_last_not_of(" \r\n") + 1);
}

/// A value in a query: only letters, digits and `-._~` are safe (RFC 3986, section 2.3).
std::string in_query(const std::string& value) {
  return percent_encoded(value, "!\"#$&'()*+,/:;<=>?@[\\]^`{|}");
}

}  // namespace

/// The body of the answer to an unsigned request. Throws Error{denied} if it is refused.
std::string AwsCredentialChain::fetch(const std::string& url, const std::string& field,
                                      const CallOptions& call_options, const char* method) {
  const std::string from = "AWS credentials: " + escaped(url.substr(0, url.find('?')));
  HttpCall call{.to = {url}, .body = {}, .method = method};
  if (!field.empty()) call.fields.push_back(field);
  std::vector<HttpCall> calls{std::move(call)};
  http_.send(calls, call_options);
  const HttpCall& done = calls.front();
  if (done.end != HttpCall::End::answered) throw_unavailable(from + ": " + done.trouble);
  if (done.status == http_ok) return done.answer;
  const std::string said = escaped(xml_text(done.answer, "Message"));
  const std::string why =
      from + " answers " + std::to_string(done.status) + (said.empty() ? "" : ": " + said);
  if (done.status >= http_server_error) throw_unavailable(why, Cause::other_reply);
  throw_none(why, Cause::password_wrong);
}

/// Exchanges the token of a pod for the credentials of its role.
std::optional<AwsCredentials> AwsCredentialChain::of_web_identity(const CallOptions& call_options) {
  const std::string file = variable("AWS_WEB_IDENTITY_TOKEN_FILE"), role = variable("AWS_ROLE_ARN");
  if (file.empty() || role.empty()) return std::nullopt;
  const std::string session = variable("AWS_ROLE_SESSION_NAME");
  std::string sts = variable("AWS_ENDPOINT_URL_STS");
  if (sts.empty()) sts = "https://sts." + region_ + ".amazonaws.com";
  const std::string answer = fetch(
      sts + "/?Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=" + in_query(role) +
          "&RoleSessionName=" + in_query(session.empty() ? "dlock" : session) +
          "&WebIdentityToken=" + in_query(token_in(file)),
      "", call_options);
  AwsCredentials found{xml_text(answer, "AccessKeyId"), xml_text(answer, "SecretAccessKey"),
                       xml_text(answer, "SessionToken"),
                       parse_moment(xml_text(answer, "Expiration"), wall_now())};
  if (found.id.empty()) throw_none("AWS credentials: " + escaped(sts) + " gives none");
  return found;
}

std::optional<AwsCredentials> AwsCredentialChain::of_container(const CallOptions& call_options) {
  std::string url = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  const std::string path = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  if (!path.empty()) url = "http://169.254.170.2" + path;
  if (url.empty()) return std::nullopt;
  std::string token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!file.empty()) token = token_in(file);
  const std::string field = token.empty() ? "" : "Authorization: " + token;
  return credentials_in(fetch(url, field, call_options), "the container's role");
}

/// The role of an EC2 instance. A host elsewhere has no such address, or nothing that answers.
std::optional<AwsCredentials> AwsCredentialChain::of_instance(const CallOptions& call_options) {
  if (variable("AWS_EC2_METADATA_DISABLED") == "true") return std::nullopt;
  std::string service = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (service.empty()) service = "http://169.254.169.254";
  const CallOptions soon = at_most(milliseconds(1000), call_options);
  const std::string roles = service + "/latest/meta-data/iam/security-credentials/";
  try {
    const std::string token = fetch(service + "/latest/api/token",
                                    "X-aws-ec2-metadata-token-ttl-seconds: 21600", soon, "PUT");
    const auto get = [&](const std::string& url) {
      return fetch(url, "X-aws-ec2-metadata-token: " + token, soon);
    };
    const std::string role = get(roles);
    return credentials_in(get(roles + role.substr(0, role.find('\n'))), "the instance's role");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    return std::nullopt;
  }
}

AwsCredentials AwsCredentialChain::find(const CallOptions& call_options) {
  AwsCredentials own{variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"),
                     variable("AWS_SESSION_TOKEN")};
  if (!own.id.empty() && !own.secret.empty()) return own;
  if (auto found = of_web_identity(call_options)) return *found;
  if (auto found = credentials_of_profile(call_options)) return *found;
  if (auto found = of_container(call_options)) return *found;
  if (auto found = of_instance(call_options)) return *found;
  throw_none("no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE");
}

const AwsCredentials& AwsCredentialChain::current(const CallOptions& call_options) {
  constexpr std::chrono::minutes early{5};
  if (known_ && (!known_->expires || wall_now() + early < *known_->expires)) return *known_;
  try {
    known_ = find({call_options.deadline, call_options.cancel_fd});
    http_.close();
  } catch (const Error&) {
    // The present ones are still good for some minutes.
    if (!known_ || wall_now() >= *known_->expires) throw;
  }
  return *known_;
}

}  // namespace dlock
