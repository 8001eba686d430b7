#include "rule/table_format.hpp"

#include <algorithm>
#include <charconv>
#include <concepts>
#include <iterator>

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

constexpr std::string_view version = "1";
constexpr std::string_view last_line = "end";
constexpr std::string_view flags = "hpkt";  // in the order of Flag
constexpr std::string_view empty_field = "-";

/// A file on the host of the processes that it names, or a record that several hosts share.
enum class Form { file, record };

std::string_view format_of(Form form) {
  return form == Form::file ? "dlock-table " : "dlock-record ";
}

/// Writes the lines of a table. Writer and Reader have the same functions for lines and values, so
/// that the format stands once, in the functions `..._fields` below.
class Writer {
 public:
  Writer(std::string& text, Form form) : text_(text), form_(form) {}
  bool names_processes() const { return form_ == Form::file; }

  void line(std::string_view kind, const auto& fields) {
    text_ += kind;
    fields();
    text_ += '\n';
  }
  void value(std::string_view field) {
    text_ += ' ';
    if (field.empty()) {
      text_ += empty_field;
    } else if (field == empty_field) {
      text_ += "%2D";
    } else {
      append_percent_encoded(text_, field);
    }
  }
  void value(std::integral auto number) {
    char digits[24] = {' '};
    const auto end = std::to_chars(std::begin(digits) + 1, std::end(digits), number).ptr;
    text_.append(digits, end);
  }
  void value(bool is_true) { value(is_true ? 1 : 0); }
  void value(Flag flag) { value(flags.substr(static_cast<std::size_t>(flag), 1)); }
  void value(microseconds time) { value(time.count()); }
  void value(milliseconds span) { value(span.count()); }
  void value(WallTime time) { value(time.time_since_epoch()); }
  void value(Ticket ticket) { value(ticket.value); }
  void value(Fence fence) { value(fence.value); }
  void last_value(Via via) {
    if (via != Via::run) value(static_cast<int>(via));
  }

 private:
  std::string& text_;
  Form form_;
};

/// Reads the lines of a table.
class Reader {
 public:
  Reader(std::string_view text, Form form, const std::string& where)
      : rest_(text), form_(form), where_(where) {}
  bool names_processes() const { return form_ == Form::file; }

  [[noreturn]] void fail() const {
    throw Error(ErrorKind::wrong_data,
                where_ + " holds no lock of this version of dlock; if it is not needed, remove it");
  }

  std::string_view raw_line() {
    const auto end = rest_.find('\n');
    if (end == std::string_view::npos) fail();
    const auto line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }
  /// Starts on the fields of the next line and returns the first.
  std::string_view open_line() {
    fields_ = raw_line();
    encoded_ = fields_.find('%') != std::string_view::npos;
    return raw_field();
  }
  void close_line() const {
    if (!fields_.empty()) fail();
  }
  void line(std::string_view kind, const auto& fields) {
    if (open_line() != kind) fail();
    fields();
    close_line();
  }
  bool at_end() const { return rest_.empty(); }

  void value(std::string& text) {
    const auto field = raw_field();
    text = field == empty_field ? "" : encoded_ ? percent_decoded(field) : std::string(field);
  }
  void value(std::integral auto& number) {
    const auto [end, error] =
        std::from_chars(fields_.data(), fields_.data() + fields_.size(), number);
    const auto digits = static_cast<std::size_t>(end - fields_.data());
    if (error != std::errc() || (digits != fields_.size() && *end != ' ')) fail();
    fields_.remove_prefix(std::min(digits + 1, fields_.size()));
  }
  void value(bool& is_true) { is_true = number_within(0, 1) == 1; }
  void value(Flag& flag) {
    const auto field = raw_field();
    const auto place = field.size() == 1 ? flags.find(field) : std::string_view::npos;
    if (place == std::string_view::npos) fail();
    flag = static_cast<Flag>(place);
  }
  void value(microseconds& time) {
    time = microseconds(number_within(earliest_time.count(), latest_time.count()));
  }
  void value(milliseconds& span) { span = milliseconds(number_within(0, longest_span.count())); }
  void value(WallTime& time) {
    microseconds since_epoch{0};
    value(since_epoch);
    time = WallTime(since_epoch);
  }
  void value(Ticket& ticket) {
    ticket.value = number_within(earliest_time.count(), latest_time.count());
  }
  /// The limit leaves room for the next fence.
  void value(Fence& fence) { fence.value = number_within(0, INT64_MAX - 1); }
  void last_value(Via& via) {
    if (!fields_.empty()) via = static_cast<Via>(number_within(1, 2));
  }

 private:
  std::int64_t number_within(std::int64_t low, std::int64_t high) {
    std::int64_t number = 0;
    value(number);
    if (number < low || number > high) fail();
    return number;
  }
  std::string_view raw_field() {
    if (fields_.empty()) fail();
    const auto end = fields_.find(' ');
    const auto field = fields_.substr(0, end);
    fields_ = end == std::string_view::npos ? std::string_view() : fields_.substr(end + 1);
    return field;
  }

  std::string_view rest_;
  std::string_view fields_;
  bool encoded_ = false;  ///< a field of the line is percent-encoded
  Form form_;
  const std::string& where_;
};

// The fields of each kind of line, in their order. `text` is a Writer or a Reader.

void fields(auto& text, auto&... all);

/// A field, or the fields of a client or process.
void field(auto& text, auto& each) {
  if constexpr (requires { each.text; }) {  // a key, token or owner
    text.value(each.text);
  } else if constexpr (requires { each.owners; }) {  // a limit
    text.value(each.owners);
  } else if constexpr (requires { each.started; }) {
    fields(text, each.pid, each.started, each.pid_space);
  } else if constexpr (requires { each.host; }) {
    fields(text, each.host, each.pid, each.user, each.command, each.label);
  } else if constexpr (requires { each.mailbox; }) {
    if (text.names_processes()) {
      fields(text, each.by_process, each.process, each.command, each.mailbox);
    } else {
      fields(text, each.command.pid, each.mailbox);
    }
  } else {
    text.value(each);
  }
}

void fields(auto& text, auto&... all) { (field(text, all), ...); }

void hold_fields(auto& text, auto& hold) {
  fields(text, hold.token, hold.owner, hold.flag, hold.at, hold.since, hold.lease, hold.ttl,
         hold.min_hold, hold.limit, hold.fence, hold.who, hold.backing);
  text.last_value(hold.who.via);
}

void waiter_fields(auto& text, auto& waiter) {
  fields(text, waiter.token, waiter.owner, waiter.ticket, waiter.seen, waiter.told, waiter.ttl,
         waiter.min_hold, waiter.limit, waiter.who, waiter.backing);
  text.last_value(waiter.who.via);
}

void latest_fields(auto& text, auto& latest) {
  fields(text, latest.ticket, latest.token, latest.owner, latest.who);
}

void last_fields(auto& text, auto& last) {
  fields(text, last.fence, last.acquired_at, last.who);
  text.last_value(last.who.via);
}

/// The lines that follow the first line of every table.
void head_lines(auto& text, auto& key, auto& table) {
  text.line("key", [&] { field(text, key); });
  text.line("fence", [&] { field(text, table.last_fence); });
  text.line("asked", [&] { field(text, table.last_ask); });
}

void write_waiters(Writer& out, const LockTable& table, std::size_t from, std::size_t to) {
  for (std::size_t i = from; i < to; ++i) {
    out.line("wait", [&] { waiter_fields(out, table.queue[i]); });
  }
}

void write_last(Writer& out, const LastGrant& last) {
  out.line("last", [&] { last_fields(out, last); });
  if (!last.end) return;
  const int exit_code = last.end->exit_code.value_or(-1);  // -1: not known
  out.line("ended", [&] { fields(out, last.end->at, exit_code); });
  if (last.end->evicted_by) out.line("evicted", [&] { field(out, *last.end->evicted_by); });
}

void read_end(Reader& in, EndOfHold& end) {
  int exit_code = -1;
  fields(in, end.at, exit_code);
  if (exit_code >= 0) end.exit_code = exit_code;
}

std::string text_in(Form form, const LockKey& key, const LockTable& table, std::size_t waiters) {
  constexpr std::size_t usual_line = 256;
  waiters = std::min(waiters, table.queue.size());
  std::string text;
  text.reserve((table.holds.size() + waiters + 2) * usual_line);
  Writer out(text, form);
  const auto nothing = [] {};
  out.line(std::string(format_of(form)) + std::string(version), nothing);
  head_lines(out, key, table);
  if (table.last) write_last(out, *table.last);
  if (table.latest) out.line("latest", [&] { latest_fields(out, *table.latest); });
  for (const HoldEntry& hold : table.holds) {
    out.line("hold", [&] { hold_fields(out, hold); });
    if (hold.stop_asked_by) out.line("stop", [&] { field(out, *hold.stop_asked_by); });
  }
  write_waiters(out, table, 0, waiters);
  out.line(last_line, nothing);
  return text;
}

NamedTable parse_in(Form form, std::string_view text, const std::string& where) {
  Reader in(text, form, where);
  const auto first = in.raw_line(), format = format_of(form);
  if (!first.starts_with(format)) in.fail();
  if (first.substr(format.size()) != version) {
    throw Error(ErrorKind::wrong_data,
                where + " was written by another version of dlock: use that one here");
  }
  NamedTable named;
  head_lines(in, named.key, named.table);
  while (true) {
    const auto kind = in.open_line();
    if (kind == last_line) break;
    if (kind == "hold") {
      hold_fields(in, named.table.holds.emplace_back());
    } else if (kind == "stop" && !named.table.holds.empty()) {
      field(in, named.table.holds.back().stop_asked_by.emplace());
    } else if (kind == "last") {
      last_fields(in, named.table.last.emplace());
    } else if (kind == "ended" && named.table.last) {
      read_end(in, named.table.last->end.emplace());
    } else if (kind == "evicted" && named.table.last && named.table.last->end) {
      field(in, named.table.last->end->evicted_by.emplace());
    } else if (kind == "latest") {
      latest_fields(in, named.table.latest.emplace());
    } else if (kind == "wait") {
      waiter_fields(in, named.table.queue.emplace_back());
    } else {
      in.fail();
    }
    in.close_line();
  }
  in.close_line();
  if (!in.at_end()) in.fail();
  return named;
}

}  // namespace

std::string table_text(const LockKey& key, const LockTable& table, std::size_t waiters) {
  return text_in(Form::file, key, table, waiters);
}

std::string waiter_lines(const LockTable& table, std::size_t first) {
  std::string lines;
  Writer out(lines, Form::file);
  write_waiters(out, table, first, table.queue.size());
  return lines;
}

NamedTable parse_table(std::string_view text, const std::string& where) {
  return parse_in(Form::file, text, where);
}

void parse_waiters(std::string_view lines, const std::string& where, LockTable& table) {
  Reader in(lines, Form::file, where);
  while (!in.at_end()) in.line("wait", [&] { waiter_fields(in, table.queue.emplace_back()); });
}

std::string record_text(const LockKey& key, const LockTable& table) {
  return text_in(Form::record, key, table, SIZE_MAX);
}

NamedTable parse_record(std::string_view text, const std::string& where) {
  return parse_in(Form::record, text, where);
}

}  // namespace dlock
