#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/lie_parts.hpp"
#include "cli/lies.hpp"
#include "support/jute.hpp"

namespace dlock::test {
namespace {

using Worth = FalseReply::Worth;
using Edit = std::function<std::string(std::string body)>;

constexpr std::size_t bytes_of_stat = 68;
constexpr std::int32_t watch_event = -1, ping = -2, login = -4, restored_watches = -8;
constexpr std::int32_t lost = -4, no_node = -101, bad_version = -103, node_exists = -110,
                       session_expired = -112, login_failed = -115, session_moved = -118;

/// Offsets in a frame, after its length.
constexpr std::size_t at_timeout = 4, at_session = 8, at_password = 16, at_read_only = 36;
constexpr std::size_t at_zxid = 4, at_error = 12, at_body = 16;
/// Offsets in the stat of a node.
constexpr std::size_t at_czxid = 0, at_mzxid = 8, at_ctime = 16, at_mtime = 24, at_version = 32,
                      at_owner = 44;

/// Whether it is the answer to a session request, without its length; other answers never have the
/// number 0.
bool is_session(std::string_view body) {
  return (body.size() == at_read_only || body.size() == at_read_only + 1) &&
         jute_number_at(body, 0) == 0 && jute_number_at(body, at_password) == 16;
}

/// Whether it is the reply to a request, not an event or the answer to a four-letter command.
bool is_answer(std::string_view body) {
  return !is_session(body) && body.size() >= at_body && jute_number_at(body, 0) > 0;
}

bool has_failed(std::string_view body) { return jute_number_at(body, at_error) != 0; }

/// Whether the reply has data: their length, the bytes, and the stat of the node.
bool has_data(std::string_view body) {
  if (!is_answer(body) || has_failed(body)) return false;
  const std::int32_t length = jute_number_at(body, at_body);
  return length >= 0 &&
         body.size() == at_body + 4 + static_cast<std::size_t>(length) + bytes_of_stat;
}

bool has_stat(std::string_view body) {
  return is_answer(body) && !has_failed(body) && body.size() >= at_body + bytes_of_stat;
}

bool has_children(std::string_view body) {
  return has_stat(body) && !has_data(body) && body.size() >= at_body + 4 + bytes_of_stat;
}

std::string put(std::string body, std::size_t at, std::string_view bytes) {
  return body.replace(at, bytes.size(), bytes);
}

/// Edits the bodies of the frames for which `is_meant` is true; other frames stay.
Lie edited(std::string name, bool (*is_meant)(std::string_view), Edit edit,
           Worth worth = Worth::by_bytes) {
  return made_of_truth(std::move(name), [=](const std::string& truth) {
    const std::string body = truth.size() < 4 ? "" : truth.substr(4);
    if (body.empty() || !is_meant(body)) return FalseReply{truth};
    FalseReply told{jute_frame(edit(body))};
    told.worth = worth;
    return told;
  });
}

Lie put_at(const std::string& name, bool (*is_meant)(std::string_view), std::size_t at,
           const std::string& bytes, Worth worth = Worth::by_bytes) {
  return edited(
      name, is_meant, [=](std::string body) { return put(std::move(body), at, bytes); }, worth);
}

Lie stat_with(const std::string& name, std::size_t at, const std::string& bytes, Worth worth) {
  return edited(
      "a node " + name, has_stat,
      [=](std::string body) {
        const std::size_t stat = body.size() - bytes_of_stat;
        return put(std::move(body), stat + at, bytes);
      },
      worth);
}

/// Sends events before the reply, or instead of it.
Lie events(const std::string& name, const std::string& bodies, bool in_place) {
  return made_of_truth(name, [=](const std::string& truth) {
    FalseReply told{in_place ? bodies : bodies + truth};
    if (!in_place) told.worth = Worth::true_reply;
    return told;
  });
}

std::string reply_head(std::int32_t number, std::int32_t error = 0) {
  return jute_number(number) + jute_long(1) + jute_number(error);
}

std::string event_of(std::int32_t type, std::string_view path) {
  return jute_frame(reply_head(watch_event) + jute_number(type) + jute_number(3) + jute_text(path));
}

std::string part_head(std::int32_t operation, bool is_last) {
  return jute_number(operation) + std::string(1, is_last ? '\1' : '\0') +
         jute_number(is_last ? -1 : 0);
}

std::string stat_of_version(std::int32_t version) {
  std::string stat(bytes_of_stat, '\0');
  return put(stat, at_version, jute_number(version));
}

/// The number of changes in a multi request that the reply reports as failed.
std::size_t refused_parts(std::string_view body) {
  constexpr std::size_t bytes_of_part = 13;
  if (!is_answer(body) || has_failed(body)) return 0;
  std::size_t count = 0, at = at_body;
  while (at + bytes_of_part <= body.size() && jute_number_at(body, at) == -1 && body[at + 4] == 0) {
    ++count;
    at += bytes_of_part;
  }
  return at + part_head(-1, true).size() == body.size() ? count : 0;
}

bool refuses_write(std::string_view body) { return refused_parts(body) > 0; }

/// A reply in which all changes succeeded: over an existing record, or of a first one.
std::string forged_write(const std::string& body, bool was_there) {
  std::string told = put(body.substr(0, at_body), at_error, jute_number(0));
  for (std::size_t i = 0; i < refused_parts(body); ++i) {
    if (was_there && i == 0) {
      told += part_head(13, false);
    } else if (was_there && i == 1) {
      told += part_head(5, false) + stat_of_version(1);
    } else {
      told += part_head(1, false) + jute_text("/dlock/k:a");
    }
  }
  return told + part_head(-1, true);
}

std::string with_data(const std::string& body, std::string_view data) {
  return body.substr(0, at_body) + jute_text(data) + body.substr(body.size() - bytes_of_stat);
}

std::string data_of(const std::string& body) {
  return body.substr(at_body + 4, body.size() - bytes_of_stat - at_body - 4);
}

/// Overwrites letters and digits with others; the length stays.
std::string in_place_of(std::string data, const char* letters, char digits) {
  const std::string_view with(letters);
  for (std::size_t at = 0; at < data.size(); ++at) {
    const bool is_digit = data[at] >= '0' && data[at] <= '9';
    if (is_digit && digits != 0) data[at] = digits;
    if (is_digit || data[at] == '\n' || data[at] == ' ' || with.empty()) continue;
    if (at + with.size() <= data.size() && data.find_first_of("\n ", at) >= at + with.size()) {
      data.replace(at, with.size(), with);
      at += with.size() - 1;
    }
  }
  return data;
}

Lie data_by(const std::string& name, const std::function<std::string(const std::string&)>& make,
            Worth worth = Worth::by_bytes) {
  return edited(
      "a record " + name, has_data,
      [=](const std::string& body) { return with_data(body, make(data_of(body))); }, worth);
}

std::string with_children(const std::string& body, const std::vector<std::string>& more) {
  const auto count = jute_number_at(body, at_body) + static_cast<std::int32_t>(more.size());
  std::string told = put(body, at_body, jute_number(count));
  std::string names;
  for (const std::string& name : more) names += jute_text(name);
  return told.insert(told.size() - bytes_of_stat, names);
}

Lie children_and(const std::string& name, const std::vector<std::string>& more,
                 Worth worth = Worth::true_reply) {
  return edited(
      "the children, and " + name, has_children,
      [=](const std::string& body) { return with_children(body, more); }, worth);
}

void add_lies_of_sessions(std::vector<Lie>& all) {
  const auto add = [&](const std::string& name, std::size_t at, const std::string& bytes) {
    all.push_back(put_at("a session " + name, is_session, at, bytes));
  };
  for (const std::int32_t timeout : {0, -1, 1, 40, INT32_MAX, INT32_MIN}) {
    add("of " + std::to_string(timeout) + " ms", at_timeout, jute_number(timeout));
  }
  add("of nobody", at_session, jute_long(0));
  add("of another", at_session, jute_long(0x1000000000000001));
  add("of -1", at_session, jute_long(-1));
  add("with another's password", at_password + 4, std::string(16, 'x'));
  add("with no password", at_password, jute_number(-1));
  add("with a gigantic password", at_password, jute_number(INT32_MAX));
  add("of another protocol", 0, jute_number(INT32_MAX));
  all.push_back(edited("a session that only reads", is_session, [](const std::string& body) {
    return body.substr(0, at_read_only) + "\1";
  }));
  all.push_back(edited("a session cut short", is_session,
                       [](const std::string& body) { return body.substr(0, 8); }));
  all.push_back(edited("a session and more", is_session,
                       [](const std::string& body) { return body + std::string(100'000, '\0'); }));
}

void add_lies_of_heads(std::vector<Lie>& all) {
  all.push_back(edited("a reply to a later request", is_answer, [](const std::string& body) {
    return put(body, 0, jute_number(jute_number_at(body, 0) + 1));
  }));
  for (const std::int32_t number : {0, watch_event, ping, login, restored_watches, INT32_MIN}) {
    all.push_back(
        put_at("a reply to " + std::to_string(number), is_answer, 0, jute_number(number)));
  }
  for (const std::int32_t error : {lost, no_node, bad_version, node_exists, session_expired,
                                   login_failed, session_moved, 1, INT32_MIN}) {
    const std::string name = "error " + std::to_string(error);
    all.push_back(put_at(name + " and a result", is_answer, at_error, jute_number(error)));
    all.push_back(edited(name, is_answer, [error](const std::string& body) {
      return put(body.substr(0, at_body), at_error, jute_number(error));
    }));
  }
  all.push_back(put_at("no error", is_answer, at_error, jute_number(0)));
  for (const std::int64_t change : {INT64_MAX, INT64_MIN, std::int64_t{0}}) {
    all.push_back(put_at("change " + std::to_string(change), is_answer, at_zxid, jute_long(change),
                         Worth::true_reply));
  }
  all.push_back(edited("no result", is_answer,
                       [](const std::string& body) { return body.substr(0, at_body); }));
  all.push_back(edited("half a result", is_answer, [](const std::string& body) {
    return body.substr(0, at_body + (body.size() - at_body) / 2);
  }));
  all.push_back(edited("a result without its last byte", is_answer,
                       [](const std::string& body) { return body.substr(0, body.size() - 1); }));
  all.push_back(edited("a result and more", is_answer,
                       [](const std::string& body) { return body + "more"; }));
  all.push_back(edited("a result of a gigantic length", is_answer, [](const std::string& body) {
    return put(body + std::string(4, '\0'), at_body, jute_number(INT32_MAX));
  }));
  all.push_back(edited("a result of a negative length", is_answer, [](const std::string& body) {
    return put(body + std::string(4, '\0'), at_body, jute_number(-2));
  }));
  all.push_back(edited("half a head", is_answer,
                       [](const std::string& body) { return body.substr(0, at_error); }));
}

void add_lies_of_nodes(std::vector<Lie>& all) {
  constexpr Worth worth = Worth::true_reply;
  all.push_back(stat_with("of another version", at_version, jute_number(77), Worth::by_bytes));
  all.push_back(stat_with("of version -1", at_version, jute_number(-1), Worth::by_bytes));
  all.push_back(stat_with("made at another time", at_czxid, jute_long(77), Worth::by_bytes));
  all.push_back(stat_with("changed at the end", at_mzxid, jute_long(INT64_MAX), worth));
  all.push_back(stat_with("changed before the beginning", at_mzxid, jute_long(-1), worth));
  all.push_back(stat_with("of 2100", at_mtime, jute_long(4'102'444'800'000), Worth::grant));
  all.push_back(stat_with("of 1970", at_mtime, jute_long(0), worth));
  all.push_back(stat_with("older than time", at_mtime, jute_long(INT64_MIN), Worth::by_bytes));
  all.push_back(stat_with("younger than time", at_mtime, jute_long(INT64_MAX), Worth::by_bytes));
  all.push_back(stat_with("made in 2100", at_ctime, jute_long(4'102'444'800'000), worth));
  all.push_back(stat_with("of another session", at_owner, jute_long(77), worth));
  all.push_back(data_by("of nothing", [](const auto&) { return std::string(); }));
  all.push_back(edited("a record of no data", has_data, [](const std::string& body) {
    return body.substr(0, at_body) + jute_number(-1) + body.substr(body.size() - bytes_of_stat);
  }));
  all.push_back(data_by("cut in half", half));
  all.push_back(data_by("twice", [](const std::string& data) { return data + data; }));
  all.push_back(data_by("of a mebibyte", [](const std::string& data) {
    return data + std::string((1 << 20) - 200 - data.size(), 'x');
  }));
  all.push_back(data_by("beyond a mebibyte",
                        [](const std::string& data) { return data + std::string(3 << 20, '\n'); }));
  const auto add = [&](const std::string& name, const char* letters, char digits) {
    all.push_back(data_by("with " + name, [=](const std::string& data) {
      return in_place_of(data, letters, digits);
    }));
  };
  add("nines for digits", "", '9');
  add("escapes for letters", "\x1b", 0);
  add("C1 controls for letters", "\x9b", 0);
  add("C1 controls in UTF-8 for letters", "\xc2\x9b", 0);
  add("bidirectional controls for letters", "\xe2\x80\xae", 0);
  add("noughts for letters", "0", 0);
}

void add_lies_of_children(std::vector<Lie>& all) {
  const auto with_count = [&](const std::string& name, const Edit& count) {
    all.push_back(edited(name + " children", has_children,
                         [=](const std::string& body) { return put(body, at_body, count(body)); }));
  };
  with_count("a gigantic number of", [](const auto&) { return jute_number(INT32_MAX); });
  with_count("a negative number of", [](const auto&) { return jute_number(-5); });
  with_count("more than there are of the", [](const std::string& body) {
    return jute_number(jute_number_at(body, at_body) + 1);
  });
  with_count("fewer than there are of the", [](const std::string& body) {
    return jute_number(jute_number_at(body, at_body) - 1);
  });
  all.push_back(edited("no children", has_children, [](const std::string& body) {
    return body.substr(0, at_body) + jute_number(0) + body.substr(body.size() - bytes_of_stat);
  }));
  all.push_back(children_and("one without a name", {""}, Worth::by_bytes));
  all.push_back(children_and("escapes", {"b-\x1b[2J",
                                         "k:\x9b"
                                         "31m",
                                         "k:\xe2\x80\xae"
                                         "a",
                                         "i-\x07"}));
  all.push_back(children_and("others", {"i-1", "b-1", "k:%zz", "k:..", "/"}));
  all.push_back(children_and("one whose name has a nought", {std::string("b-\0x", 4)}));
  all.push_back(children_and("one with a long name", {"b-" + std::string(500'000, 'x')}));
  all.push_back(children_and("many", std::vector<std::string>(49'000, "k:a")));
  all.push_back(children_and("too many", std::vector<std::string>(190'000, "x"), Worth::by_bytes));
  all.push_back(
      children_and("too many without names", std::vector<std::string>(260'000), Worth::by_bytes));
}

void add_lies_of_writes(std::vector<Lie>& all) {
  const auto forged = [&](const std::string& name, bool was_there) {
    all.push_back(edited(
        name, refuses_write, [=](const std::string& body) { return forged_write(body, was_there); },
        Worth::grant));
  };
  forged("a forged write over a record", true);
  forged("a forged first write", false);
  // The record seems to be absent, and each write of one seems to succeed.
  all.push_back(made_of_truth("no record, and a forged first write", [](const std::string& truth) {
    const std::string body = truth.size() < 4 ? "" : truth.substr(4);
    FalseReply told{truth};
    if (refuses_write(body)) {
      told.bytes = jute_frame(forged_write(body, false));
      told.worth = Worth::grant;
    } else if (has_data(body) || has_children(body)) {
      told.bytes = jute_frame(put(body.substr(0, at_body), at_error, jute_number(no_node)));
    }
    return told;
  }));
  const auto parts = [&](const std::string& name, const std::string& results) {
    all.push_back(edited(name, is_answer, [=](const std::string& body) {
      return put(body.substr(0, at_body), at_error, jute_number(0)) + results;
    }));
  };
  const std::string end = part_head(-1, true), check = part_head(13, false),
                    refused = part_head(-1, false) + jute_number(bad_version);
  parts("no changes", end);
  parts("changes without an end", check);
  parts("one change", check + end);
  parts("one refused change", refused + end);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += refused;
  parts("a thousand refused changes", many + end);
  parts("changes of no kind", part_head(99, false) + part_head(99, false) + end);
}

void add_lies_of_events(std::vector<Lie>& all) {
  all.push_back(events("an event, and the reply", event_of(3, "/dlock/k:a"), false));
  all.push_back(events("an event of the end, and the reply", event_of(2, "/dlock/k:h"), false));
  all.push_back(events("an event of no kind, and the reply", event_of(99, "/"), false));
  all.push_back(events("an event of the session, and the reply", event_of(-1, ""), false));
  all.push_back(events("an event with escapes, and the reply",
                       event_of(3, "/dlock/\x1b[2J\x9b\xe2\x80\xae"), false));
  all.push_back(events("an event with a long path, and the reply",
                       event_of(3, "/" + std::string(900'000, 'x')), false));
  all.push_back(events("a ping, and the reply", jute_frame(reply_head(ping)), false));
  all.push_back(events("an event in place of the reply", event_of(3, "/dlock/k:a"), true));
  all.push_back(events("an event cut short", jute_frame(reply_head(watch_event)), true));
  all.push_back(events("an event without a path",
                       jute_frame(reply_head(watch_event) + jute_long(3) + jute_number(-1)), true));
  all.push_back(events("an event with a gigantic path",
                       jute_frame(reply_head(watch_event) + jute_long(3) + jute_number(INT32_MAX)),
                       true));
  all.push_back(events("a reply to a login", jute_frame(reply_head(login)), true));
  all.push_back(events("a login that failed", jute_frame(reply_head(login, login_failed)), true));
  all.push_back(events("a reply to watches", jute_frame(reply_head(restored_watches)), true));
  all.push_back(events("a reply to nothing", jute_frame(reply_head(7)), true));
}

}  // namespace

std::vector<Lie> zookeeper_lies() {
  std::vector<Lie> all;
  const auto begun = [&](const std::string& name, std::int32_t length) {
    all.push_back(instead("endless " + name, jute_number(length), Then::repeat, "xxxx"));
  };
  begun("gigantic frame", INT32_MAX);
  begun("frame of a mebibyte", 1 << 20);
  begun("negative frame", -1);
  begun("empty frame", 0);
  all.push_back(instead("endless empty frames", "", Then::repeat, jute_number(0)));
  all.push_back(instead("endless pings", "", Then::repeat, jute_frame(reply_head(ping))));
  all.push_back(instead("endless events", "", Then::repeat, event_of(3, "/dlock/k:a")));
  all.push_back(dripping("an endless frame, byte by byte", jute_number(100'000), "x"));
  all.push_back(dripping("endless pings, byte by byte", "", jute_frame(reply_head(ping))));
  all.push_back(dripping("endless events, byte by byte", "", event_of(3, "/dlock/k:a")));
  add_lies_of_sessions(all);
  add_lies_of_heads(all);
  add_lies_of_nodes(all);
  add_lies_of_children(all);
  add_lies_of_writes(all);
  add_lies_of_events(all);
  return all;
}

}  // namespace dlock::test
