#include "output/sentences.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/duration.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

constexpr std::size_t holders_named = 3;

std::string lease_text(const Holder& holder) {
  if (!holder.lease_left && !holder.library.empty()) return ", no expiry";
  return holder.lease_left ? ", lease " + human_duration(*holder.lease_left) + " left" : "";
}

std::string holder_text(const Holder& holder) {
  if (holder.kept) {
    return "nobody, but kept taken by --min-hold for another " +
           human_duration(holder.lease_left.value_or(milliseconds(0))) + " after " +
           who_text(holder.who);
  }
  if (!holder.library.empty()) return client_text(holder) + lease_text(holder);
  return who_text(holder.who) + " for " + human_duration(holder.held) + lease_text(holder);
}

std::string holders_list(const Refusal& refusal) {
  if (refusal.holders == 1) return holder_text(refusal.held_by.front());
  const std::size_t named = std::min(refusal.held_by.size(), holders_named);
  std::string text = std::to_string(refusal.holders) + " owners: " +
                     joined(std::span(refusal.held_by).first(named), "; ", holder_text);
  if (refusal.holders > named) text += "; and " + std::to_string(refusal.holders - named) + " more";
  return text;
}

std::size_t left_of(std::size_t room, std::size_t taken) { return room - std::min(room, taken); }

/// `deploy@web1` of deploy@web1.example.com.
std::string short_who(const Who& who, const Screen& screen) {
  const std::string host = screen.shown(who.host);
  return screen.shown(who.user) + "@" + host.substr(0, host.find('.'));
}

/// The longest form of the process's identity that fits into `room` columns.
std::string who_within(const Who& who, std::size_t room, const Screen& screen) {
  const std::string place = screen.shown(who.user) + "@" + screen.shown(who.host);
  const std::string process = place + " pid " + std::to_string(who.pid);
  for (const std::string& text :
       {process + " (" + screen.shown(who.command) + ")", process, place}) {
    if (display_width(text) <= room) return text;
  }
  return screen.fitted(short_who(who, screen), room);
}

/// `waiting 3s for `, and in the first second `waiting for `.
std::string waiting_since(milliseconds waited) {
  const bool counts = waited >= std::chrono::seconds(1);
  return counts ? "waiting " + human_duration(waited) + " for " : "waiting for ";
}

/// The text for a narrow screen, with shortened names but all facts.
std::string short_waiting_text(const LockKey& key, const Refusal& refusal, milliseconds waited,
                               const Screen& screen) {
  constexpr std::size_t least_of_a_name = 8;
  const Holder& first = refusal.held_by.front();
  const std::string begin = waiting_since(waited);
  if (!first.library.empty()) {
    const std::size_t left = left_of(screen.columns, display_width(begin));
    return begin + screen.fitted(screen.shown(key.text) + lease_text(first), left);
  }
  std::string facts = ", " + std::to_string(refusal.ahead + 1) + "/" +
                      std::to_string(std::max(refusal.waiting, refusal.ahead + 1)) + "; ";
  if (first.kept) {
    facts += "kept " + human_duration(first.lease_left.value_or(milliseconds(0))) + " more: ";
  } else {
    facts += "held " + human_duration(first.held) +
             (first.lease_left ? ", lease " + human_duration(*first.lease_left) : "") + ": ";
  }
  const std::string others =
      refusal.holders > 1 ? ", " + std::to_string(refusal.holders - 1) + " more" : "";
  const std::size_t room = left_of(screen.columns, display_width(begin + facts + others));
  const std::size_t for_key = left_of(room, display_width(short_who(first.who, screen)));
  const std::string name =
      screen.fitted(screen.shown(key.text), std::max(least_of_a_name, for_key));
  const std::string who = who_within(first.who, left_of(room, display_width(name)), screen);
  return begin + name + facts + who + others;
}

std::string waiting_for(const LockKey& key, milliseconds waited, const Screen& screen) {
  const std::size_t most = screen.columns / 3;
  return waiting_since(waited) + screen.fitted(screen.shown(key.text), most);
}

}  // namespace

std::string fence_text(Fence fence) {
  return fence == Fence{} ? "" : ", fence " + std::to_string(fence.value);
}

std::string client_text(const Holder& holder) {
  if (holder.library.empty()) return who_text(holder.who);
  std::string text = "a client of " + holder.library;
  if (!holder.who.host.empty()) text += " on " + escaped(holder.who.host);
  if (holder.acquired_at != WallTime{}) text += " since " + iso8601(holder.acquired_at);
  return text;
}

std::string command_text(const Who& who, const std::string& shown) {
  if (who.command_pid == 0 || who.command_pid == who.pid) return shown;
  return "dlock: " + shown + ", pid " + std::to_string(who.command_pid);
}

std::string who_text(const Who& who) {
  std::string text = escaped(who.user) + "@" + escaped(who.host) + " pid " +
                     std::to_string(who.pid) + " (" + command_text(who, escaped(who.command)) + ")";
  if (!who.label.empty()) text += " [" + escaped(who.label) + "]";
  return text;
}

std::string refusal_text(const LockKey& key, const Refusal& refusal) {
  const std::string name = escaped(key.text);
  switch (refusal.why) {
    case Refusal::Reason::gone:
      return name + ": this token was released before";
    case Refusal::Reason::upgrade:
      return name +
             " is held by this owner and by others: a shared hold cannot become a narrower " +
             "one while others hold it too";
    case Refusal::Reason::superseded:
      return name + ": superseded by " +
             (refusal.held_by.empty() ? "a newer --latest"
                                      : who_text(refusal.held_by.front().who)) +
             ", which asked later";
    case Refusal::Reason::unready:
      return name + ": " + refusal.reason;
    case Refusal::Reason::split:
      if (!refusal.reason.empty()) return name + ": " + refusal.reason;
      return name +
             " is wanted by several clients at once, and none of them has a majority of the " +
             "servers";
    case Refusal::Reason::held:
      break;
  }
  const std::string queue =
      refusal.waiting > 0 ? ", " + std::to_string(refusal.waiting) + " waiting" : "";
  const std::string ahead =
      refusal.behind ? "; ahead of this request waits " + who_text(*refusal.behind) : "";
  const std::string held = refusal.held_by.empty() ? " is free, but others wait for it"
                                                   : " is held by " + holders_list(refusal);
  return name + held + queue + ahead;
}

std::string waiting_text(const LockKey& key, const Refusal& refusal, milliseconds waited,
                         const Screen& screen) {
  const std::string begin = waiting_for(key, waited, screen);
  if (refusal.why != Refusal::Reason::held) return begin + ": " + refusal_text(key, refusal);
  const std::size_t waiting = std::max(refusal.waiting, refusal.ahead + 1);
  const std::string place = refusal.unordered ? ""
                                              : ", place " + std::to_string(refusal.ahead + 1) +
                                                    " of " + std::to_string(waiting);
  // Put the labels at the end, where a narrow terminal cuts the line: they say least.
  Refusal unlabelled = refusal;
  std::string labels;
  for (Holder& holder : unlabelled.held_by) {
    const std::string label = std::exchange(holder.who.label, "");
    if (!label.empty()) labels += " [" + escaped(label) + "]";
  }
  const std::string holders = refusal.held_by.empty() ? "no holder" : holders_list(unlabelled);
  const std::string text = begin + place + ": " + holders;
  const std::string shown = screen.utf8 ? text : ascii_alone(text);
  const bool too_long = screen.is_terminal && display_width(shown) > screen.columns;
  if (too_long && !refusal.held_by.empty()) {
    return short_waiting_text(key, refusal, waited, screen);
  }
  return shown + (screen.utf8 ? labels : ascii_alone(labels));
}

std::string waiting_in_vain_text(const LockKey& key, milliseconds waited, const Screen& screen) {
  return waiting_for(key, waited, screen) + ": the server does not answer";
}

std::string not_held_by_token_text(const LockKey& key, const std::optional<Who>& evicted_by) {
  const std::string begin = escaped(key.text) + " is not held by this token: ";
  if (evicted_by) return begin + evicted_by_text(*evicted_by);
  return begin + "it was released or evicted, or its lease has expired";
}

std::string predecessor_text(const LockKey& key, const Predecessor& predecessor) {
  return "the holder of " + escaped(key.text) + " before this was " +
         evicted_by_text(predecessor.evicted_by) + "; it may still run for " +
         human_duration(predecessor.left);
}

std::string token_holds_text(std::size_t held, std::size_t keys, const std::string& where) {
  if (held == 0) {
    return "this token holds nothing at " + where +
           ": it was released or evicted, or its lease has expired";
  }
  return "this token held only " + std::to_string(held) + " of its " + std::to_string(keys) +
         " keys at " + where + ": the others were released or evicted, or their lease has expired";
}

std::string lost_text(const LockKey& key, const std::string& reason) {
  return "lost " + escaped(key.text) + ": " + reason;
}

std::string arrivals_text(const LatchState& state) {
  return std::to_string(state.arrived) + " of " + std::to_string(state.count) + " have arrived";
}

std::string latch_text(const LockKey& key, const LatchState& state) {
  return escaped(key.text) + ": " + arrivals_text(state);
}

std::string server_lost_text(const std::string& why, const std::string& doing) {
  return why + "; still " + doing + ", trying again";
}

std::string server_back_text(milliseconds away, const std::string& doing) {
  return "the server answers again after " + human_duration(away) + "; still " + doing;
}

std::string exec_error_text(const std::string& name, int error) {
  const bool missing = error == ENOENT;
  const bool searched = missing && !name.empty() && name.find('/') == std::string::npos;
  const bool shell_line = missing && name.find(' ') != std::string::npos;
  // ENOENT although the file exists: the interpreter in its first line is missing (execve(2)).
  const bool is_there = missing && !searched && access(name.c_str(), F_OK) == 0;
  return "cannot run \"" + escaped(name) + "\": " + std::strerror(error) +
         (searched ? " in PATH" : "") +
         (is_there ? ": it is there, but the interpreter in its first line is not; does that line "
                     "end in CR LF?"
                   : "") +
         (shell_line && !is_there ? "; a line for the shell follows -c" : "");
}

std::string margin_text(const LockKey& key, const QuorumMargin& margin) {
  return escaped(key.text) + " is held on " + std::to_string(margin.held) + " of " +
         std::to_string(margin.servers) + " servers, and " + std::to_string(margin.needed) +
         " are needed" + (margin.missing.empty() ? "" : ": " + margin.missing);
}

}  // namespace dlock
