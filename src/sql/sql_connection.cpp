#include "sql/sql_connection.hpp"

#include <algorithm>
#include <iterator>

#include "base/text.hpp"

namespace dlock {
namespace {

/// Returns the text in lower case and without quoted parts: names of hosts and files do not show
/// the kind.
std::string plain_words(std::string_view said) {
  std::string words;
  bool quoted = false;
  for (const char c : said) {
    if (c == '"') quoted = !quoted;
    if (!quoted) words += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return words;
}

}  // namespace

Error tls_error(std::string_view said, const std::string& message) {
  // Check these first, because they contain "certificate", too.
  constexpr std::string_view of_files[] = {
      "certificate file", "private key file",    "no certificate or crl found",
      "no start line",    "key values mismatch", "key type mismatch"};
  // These are the alerts about certificates and names, and OpenSSL's texts for a certificate that
  // is not accepted; other alerts indicate a server problem.
  constexpr std::string_view of_trust[] = {"certificate",
                                           "hostname mismatch",
                                           "hostname verification",
                                           "does not match",
                                           "ip address mismatch",
                                           "fingerprint",
                                           "finger print",
                                           "crl ",
                                           "unknown ca",
                                           "unrecognized name",
                                           "access denied",
                                           "issuer",
                                           "constraint",
                                           "critical extension",
                                           "too weak"};
  const std::string words = plain_words(said);
  const auto names = [&](std::string_view what) { return words.find(what) != std::string::npos; };
  if (std::any_of(std::begin(of_files), std::end(of_files), names)) {
    return {ErrorKind::usage, message};
  }
  if (std::any_of(std::begin(of_trust), std::end(of_trust), names)) {
    return {ErrorKind::denied, message, Cause::certificate};
  }
  return {ErrorKind::unavailable, message};
}

std::string take_schema(std::string& url) {
  constexpr std::string_view name = "dlock-schema=";
  const std::string whole = std::exchange(url, "");
  std::string_view rest = whole;
  url = take_until(rest, '?');
  std::string schema;
  for (char separator = '?'; !rest.empty();) {
    const auto parameter = take_until(rest, '&');
    if (parameter.starts_with(name)) {
      schema = percent_decoded(parameter.substr(name.size()));
      continue;
    }
    url += std::exchange(separator, '&') + std::string(parameter);
  }
  return schema;
}

void SqlConnection::connect(const CallOptions& call_options) {
  if (is_open() && !is_stale()) return;
  close();
  std::vector<Host> all;
  try {
    all = hosts(call_options);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    throw error.reworded(name() + ": " + error.what());
  }
  std::optional<Error> trouble;
  // The libraries themselves would give all the time to a host that never answers.
  for (std::size_t i = 0; i < all.size(); ++i) {
    try {
      login_id_ = log_in(all[i], share_of(call_options, all.size() - i));
      ++count_;
      return;
    } catch (const Error& error) {
      if (is_open()) abandon();
      const bool is_away = error.kind() == ErrorKind::unavailable;
      // Another host may have a certificate that is trusted.
      if (!is_away && error.cause() != Cause::certificate) throw error.after_good_files(count_ > 0);
      // A host that is unreachable now may answer later.
      if (is_away || !trouble) trouble = error;
    }
  }
  throw Error(*trouble);
}

std::vector<SqlResult> SqlConnection::ask(const std::string& statements,
                                          const CallOptions& call_options) {
  send(statements, call_options);
  if (call_options.sent != nullptr) call_options.sent->raise();
  return receive(call_options);
}

short SqlConnection::await(short events, const CallOptions& call_options) {
  pollfd fds[] = {{call_options.cancel_fd, POLLIN, 0}, {fd(), events, 0}};
  poll_until(fds, call_options.deadline);
  // A server that sends without end gets no more time than a silent one.
  const bool in_time = BootClock::now() < call_options.deadline;
  if (fds[0].revents != 0 || !in_time) give_up(call_options);
  return fds[1].revents;
}

void SqlConnection::give_up(const CallOptions& call_options) {
  abandon();
  if (readable(call_options.cancel_fd)) throw_interrupted();
  throw_unavailable(name() + ": no answer in time");
}

void SqlConnection::broke(const std::string& message) {
  abandon();
  throw_unavailable(name() + ": the connection broke" +
                    (message.empty() ? "" : ": " + escaped(message)));
}

}  // namespace dlock
