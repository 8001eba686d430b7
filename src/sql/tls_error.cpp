#include "sql/tls_error.hpp"

#include <algorithm>
#include <string>

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

ErrorKind tls_error_kind(std::string_view said) {
  // Check these first, because they contain "certificate", too.
  constexpr std::string_view of_files[] = {
      "certificate file", "private key file",    "no certificate or crl found",
      "no start line",    "key values mismatch", "key type mismatch"};
  // These are the alerts about certificates and names; other alerts indicate a server problem.
  constexpr std::string_view of_trust[] = {
      "certificate",         "hostname mismatch", "hostname verification", "does not match",
      "ip address mismatch", "fingerprint",       "finger print",          "crl ",
      "unknown ca",          "unrecognized name", "access denied"};
  const std::string words = plain_words(said);
  const auto names = [&](std::string_view what) { return words.find(what) != std::string::npos; };
  if (std::any_of(std::begin(of_files), std::end(of_files), names)) return ErrorKind::usage;
  if (std::any_of(std::begin(of_trust), std::end(of_trust), names)) return ErrorKind::denied;
  return ErrorKind::unavailable;
}

}  // namespace dlock
