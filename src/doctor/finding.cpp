#include "doctor/finding.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/duration.hpp"

namespace dlock {
namespace {

std::string rounded(double number, const char* unit) {
  std::array<char, 64> text{};
  const int decimals = number < 1 ? 2 : number < 10 ? 1 : 0;
  std::snprintf(text.data(), text.size(), "%.*f%s", decimals, number, unit);
  return text.data();
}

}  // namespace

std::string span_text(std::chrono::nanoseconds span) {
  constexpr double least_shown = 0.01;
  const double ms = std::max(std::chrono::duration<double, std::milli>(span).count(), least_shown);
  return ms < 1000 ? rounded(ms, " ms") : rounded(ms / 1000, " s");
}

std::string size_text(long long bytes) {
  constexpr std::array units{"B", "K", "M", "G", "T"};
  double number = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (number >= 1024 && unit + 1 < units.size()) {
    number /= 1024;
    ++unit;
  }
  return unit == 0 ? std::to_string(bytes) + "B" : rounded(number, units[unit]);
}

std::string counted(long long number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

bool is_older(const std::string& version, ShortVersion least) {
  const auto dot = version.find('.');
  if (dot == std::string::npos) return false;
  const auto end = version.find_first_not_of("0123456789", dot + 1);
  const auto major = parse_number(version.substr(0, dot), 0, 1000);
  const auto minor = parse_number(version.substr(dot + 1, end - dot - 1), 0, 1000);
  return major && minor && ShortVersion{*major, *minor} < least;
}

std::string refusals(const ServerFacts& facts) {
  std::string text = facts.info.refusal.empty() ? "" : "INFO: " + facts.info.refusal;
  if (!facts.config.refusal.empty()) {
    text += (text.empty() ? "" : ", ") + std::string("CONFIG: ") + facts.config.refusal;
  }
  return text.empty() ? "not reported by the server" : text;
}

std::string advice_on(Cause cause, const char* otherwise) {
  switch (cause) {
    case Cause::password_missing:
      return "give one; dlock doctor --acl prints a user to make";
    case Cause::password_wrong:
      return "check user and password; dlock doctor --acl prints a user to make";
    case Cause::password_unneeded:
      return "unset it, or set requirepass there";
    case Cause::protected_mode:
      return "give it a password, then protected-mode no";
    case Cause::acl:
      return "grant what is missing; dlock doctor --acl prints all";
    case Cause::no_such_database:
      return "another number in --server, or none";
    case Cause::too_many_clients:
      return "raise its limit of clients (maxclients, max_connections)";
    case Cause::out_of_memory:
      return "raise maxmemory, or make room";
    case Cause::cannot_save:
      return "fix its disk: see its log and INFO persistence";
    case Cause::too_few_replicas:
      return "bring the replicas back: see replication";
    case Cause::read_only:
      return "name the master in --server";
    case Cause::loading:
      return "wait until it has started";
    case Cause::busy:
      return "wait, or end that script: SCRIPT KILL";
    case Cause::not_replicated:
      return "more replicas, or a smaller --replicas";
    case Cause::not_looked_up:
      return "fix the name in --server, or DNS";
    case Cause::no_tls:
    case Cause::tls_failed:
      return "make the scheme of --server fit it";
    case Cause::old_tls:
      return "let it speak TLS 1.2 or newer";
    case Cause::tls_interrupted:
      return "is it overloaded, or no server of TLS?";
    case Cause::certificate:
      return "make --tls-ca, --tls-cert or --tls-server-name fit";
    case Cause::certificate_expired:
      return "renew its certificate";
    case Cause::other_protocol:
      return "name the host and port of a Redis in --server";
    case Cause::other_reply:
    case Cause::none:
      break;
  }
  return otherwise;
}

std::string advice_on_reach(Cause cause) {
  return advice_on(cause, is_reply(cause)
                              ? "see the server's log"
                              : "is it running, and do address, port and firewall fit?");
}

}  // namespace dlock
