#include "cli/lies.hpp"

#include <algorithm>
#include <cctype>
#include <string>

#include "base/text.hpp"
#include "cli/lie_parts.hpp"
#include "cli/lies_of_lengths.hpp"
#include "support/files.hpp"
#include "support/resp.hpp"

namespace dlock::test {
namespace {

constexpr std::string_view line_end = "\r\n";

std::string nested() {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "*1\r\n";
  return text;
}

/// The reply with another number in place of each integer that is one by its type.
std::string with_numbers(const std::string& truth, const std::string& number) {
  std::string text;
  for (std::size_t at = 0; at < truth.size();) {
    const auto end = truth.find("\r\n", at);
    const auto next = end == std::string::npos ? truth.size() : end + 2;
    text += truth[at] == ':' ? ":" + number + "\r\n" : truth.substr(at, next - at);
    at = next;
  }
  return text;
}

/// Whether a byte is written within a line, neither its type nor in a header.
std::vector<bool> written_in(const std::string& text) {
  std::vector<bool> written(text.size(), false);
  bool is_header = true;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool starts_line = at == 0 || (at > 1 && text[at - 1] == '\n' && text[at - 2] == '\r');
    if (starts_line) is_header = text[at] == '$' || text[at] == '*' || text[at] == ':';
    const bool is_kind = starts_line && (text[at] == '+' || text[at] == '-');
    written[at] = !is_header && !is_kind && text[at] != '\r' && text[at] != '\n';
  }
  return written;
}

/// The reply with something else in place of what is written in it, of the same lengths: what is
/// shorter than `with` stays.
std::string overwritten(std::string text, bool digits, std::string_view with) {
  const auto written = written_in(text);
  const auto is_one = [&](std::size_t at) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(text[at])) != 0;
    return written[at] && is_digit == digits && (with.size() == 1 || text[at] != ' ');
  };
  for (std::size_t at = 0, run = 0; at < text.size(); ++at) {
    run = is_one(at) ? run + 1 : 0;
    if (run < with.size()) continue;
    text.replace(at + 1 - with.size(), with.size(), with);
    run = 0;
  }
  return text;
}

std::string text_reply(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

/// The last line of it, taken off.
std::string take_last_line(std::string& text) {
  text.resize(text.rfind(line_end));
  const auto before = text.rfind(line_end);
  const auto at = before == std::string::npos ? 0 : before + line_end.size();
  std::string line = text.substr(at);
  text.resize(at);
  return line;
}

/// The words on its memory that a member of a majority adds to its refusals, and to its grants;
/// nothing where the server is none.
std::string tail_of_member(std::string refusal) {
  constexpr std::size_t bytes_of_run_id = 40;
  const std::string recorded = take_last_line(refusal);
  if (recorded.find('/') != bytes_of_run_id) return "";
  take_last_line(refusal);  // the length of that text
  std::string quarantined_ms = take_last_line(refusal);
  if (quarantined_ms.starts_with(':')) quarantined_ms.erase(0, 1);
  return " " + quarantined_ms + " " + recorded;
}

/// In place of a refusal: one server alone is believed, if there can be such a fence, and one of
/// several is not.
Lie forged_grant(const std::string& fence) {
  return {"a forged grant with fence " + fence, [fence](const std::string& truth) {
            const auto at = truth.find("\r\n$7\r\nrefused\r\n");
            if (at == std::string::npos) return FalseReply{truth};
            const auto start = truth.rfind('*', at);
            const auto size = message_size(std::string_view(truth).substr(start)).value();
            const std::string tail = tail_of_member(truth.substr(start, size));
            return FalseReply{truth.substr(0, start) +
                              text_reply("granted " + fence + " 0" + tail) +
                              truth.substr(start + size)};
          }};
}

/// The reply, which renews, with a lease of a year.
FalseReply forged_renewal(const std::string& truth) {
  const auto at = truth.find("renewed ");
  if (at == std::string::npos) return {truth};
  std::string_view left = std::string_view(truth).substr(at);
  left.remove_suffix(line_end.size());
  take_until(left, ' ');
  take_until(left, ' ');
  return {text_reply("renewed 31536000000 " + std::string(left))};
}

/// The latest time in a reply, in microseconds: the server's, when it replied.
std::string time_in(const std::string& reply) {
  constexpr std::string_view digits = "0123456789";
  constexpr std::size_t digits_of_now = 16;
  std::string latest;
  for (auto at = reply.find_first_of(digits); at != std::string::npos;) {
    const auto end = std::min(reply.find_first_not_of(digits, at), reply.size());
    if (end - at == digits_of_now) latest = std::max(latest, reply.substr(at, end - at));
    at = reply.find_first_of(digits, end);
  }
  return latest;
}

/// Behind the answer to a waiter, which begins to listen with it, the message that it has the lock.
FalseReply forged_hand_over(const std::string& truth) {
  const auto listens = truth.find("subscribe\r\n");
  const bool refuses = truth.find("\r\nrefused\r\n") != std::string::npos;
  if (listens == std::string::npos || !refuses) return {truth};
  const auto lines = lines_of(truth.substr(listens));
  const std::string channel = lines.at(2).substr(0, lines[2].size() - 1);
  const std::string now = time_in(truth);
  return {truth + request({"message", channel, "grant " + now + " 1200 " + now + " "})};
}

/// A true hand-over, for a year.
FalseReply long_hand_over(const std::string& truth) {
  const auto at = truth.find("\r\ngrant ");
  if (!is_published(truth) || at == std::string::npos) return {truth};
  const auto words = request_words(truth);
  std::string_view left = words.at(2);
  take_until(left, ' ');
  const std::string now(take_until(left, ' '));
  take_until(left, ' ');
  return {request({words[0], words[1], "grant " + now + " 31536000000 " + std::string(left)})};
}

void add_lies_of_grants(std::vector<Lie>& all) {
  for (const char* fence : {"1795270103123573", "0", "-1", "9007199254740992"}) {
    all.push_back(forged_grant(fence));
  }
  all.push_back(instead(text_reply("granted 1795270103123573 0")));
  all.push_back(instead(text_reply("renewed 31536000000 1795270103123573 1 0")));
  all.push_back(instead(text_reply("gone 0")));
  all.push_back(made_of_truth("a renewal for a year", forged_renewal));
  all.push_back(made_of_truth("a forged hand-over", forged_hand_over));
  all.push_back(made_of_truth("a hand-over for a year", long_hand_over));
}

void add_lies_of_time(std::vector<Lie>& all) {
  all.push_back(instead("silence", ""));
  all.push_back(made_of_truth("half of the reply, then silence",
                              [](const auto& truth) { return FalseReply{half(truth)}; }));
  all.push_back(made_of_truth("the reply, byte by byte", [](const auto& truth) {
    return FalseReply{truth, Then::go_on, "", drip};
  }));
  all.push_back(made_of_truth("half of the reply, then the end", [](const auto& truth) {
    return FalseReply{half(truth), Then::close};
  }));
  all.push_back(made_of_truth("all but the last byte, then a reset", [](const auto& truth) {
    return FalseReply{truth.substr(0, truth.size() - 1), Then::reset};
  }));
  all.push_back(made_of_truth("the reply twice",
                              [](const auto& truth) { return FalseReply{truth + truth}; }));
  all.push_back(instead("the end", "", Then::close));
  all.push_back(instead("rubbish and the end", "rubbish without an end", Then::close));
}

}  // namespace

std::vector<Lie> resp_lies(const Address& other_server) {
  const std::string other = "127.0.0.1:" + std::to_string(other_server.port) + "\r\n";
  std::vector<Lie> all{
      instead("+OK\r\n"),
      instead(":1\r\n"),
      instead(":99999999999999999999\r\n"),
      instead("$-1\r\n"),
      instead("$-5\r\n"),
      instead("*-1\r\n"),
      instead("*0\r\n"),
      instead("*1\r\n*-1\r\n"),
      instead("*3\r\n:1\r\n:2\r\n:3\r\n"),
      instead("+QUEUED\r\n"),
      instead("-ERR \x1b[2J\x1b]0;owned\x07 \x9b"
              "31m and more\r\n"),
      instead("-MOVED 99999 127.0.0.1:1\r\n"),
      instead("-MOVED 1 :0\r\n"),
      instead("-ASK 1 127.0.0.1:1\r\n"),
      instead("-MOVED 1 " + other),
      instead("-ASK 1 " + other),
      instead("-NOSCRIPT No matching script\r\n"),
      instead("-LOADING Redis is loading\r\n"),
      instead("-READONLY You can't write\r\n"),
      instead("-BUSY Redis is busy running a script\r\n"),
      instead("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"),
      instead("-NOAUTH Authentication required.\r\n"),
      instead(text_reply("granted")),
      instead(text_reply("granted abc 0")),
      instead(text_reply("granted -5 0")),
      instead(text_reply("granted 99999999999999999999 0")),
      instead(text_reply("refused \x1b[2J")),
      instead(text_reply("released")),
      instead(text_reply("renewed 9223372036854775807 -1 0 0")),
      instead(request({"granted"})),
      instead(request({"granted", "-1", "-1", "-1"})),
      instead(request({"granted", "abc", "\x1b[31m", ""})),
      instead(request({"held", "\x1b[2J", "\n", "9999999999999999999999"})),
      instead(request({"message", "dlock:{a}:no", "grant 1 2 3 4"})),
      instead(request({"127.0.0.1", std::to_string(other_server.port)})),
      instead(std::string("+with\0nul\r\n", 11)),
      instead("a reply cut short", "*3\r\n$7\r\ngran", Then::close),
      endless("+"),
      endless("$1000000000\r\n"),
      endless("*2147483647\r\n$1\r\n"),
      endless(nested()),
      endless("", "+OK\r\n"),
      dripping("an endless line, byte by byte", "+", "x"),
      dripping("an endless text, byte by byte", "$100000\r\n", "x"),
      dripping("an endless list, byte by byte", "*4000\r\n", ":1\r\n"),
      made_of_truth(
          "the reply with large numbers",
          [](const auto& truth) { return FalseReply{with_numbers(truth, "9223372036854775807")}; }),
      made_of_truth("the reply with negative numbers",
                    [](const auto& truth) {
                      return FalseReply{with_numbers(truth, "-9223372036854775808")};
                    }),
      made_of_truth("the reply with nines for digits",
                    [](const auto& truth) { return FalseReply{overwritten(truth, true, "9")}; }),
      made_of_truth("the reply with noughts for digits",
                    [](const auto& truth) { return FalseReply{overwritten(truth, true, "0")}; }),
      made_of_truth(
          "the reply with escapes for letters",
          [](const auto& truth) { return FalseReply{overwritten(truth, false, "\x1b")}; }),
      made_of_truth(
          "the reply with C1 controls for letters",
          [](const auto& truth) { return FalseReply{overwritten(truth, false, "\x9b")}; }),
      made_of_truth(
          "the reply with C1 controls in UTF-8 for letters",
          [](const auto& truth) { return FalseReply{overwritten(truth, false, "\xc2\x9b")}; }),
      made_of_truth(
          "the reply with bidirectional controls for letters",
          [](const auto& truth) { return FalseReply{overwritten(truth, false, "\xe2\x80\xae")}; }),
  };
  add_lies_of_grants(all);
  add_lies_of_time(all);
  add_lies_of_lengths(all);
  return all;
}

}  // namespace dlock::test
