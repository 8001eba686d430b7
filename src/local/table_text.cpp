#include "local/table_text.hpp"

#include <charconv>

#include "base/error.hpp"
#include "base/escape.hpp"

namespace dlock {
namespace {

constexpr std::string_view first_line = "dlock-table 1";
constexpr std::string_view last_line = "end";
constexpr std::string_view flags = "hpkt";  // in the order of Flag
constexpr std::string_view empty_field = "-";

/// One line in the making.
class Line {
 public:
  explicit Line(std::string_view kind) : text_(kind) {}
  Line& add(std::string_view field) {
    text_ += ' ';
    if (field.empty()) text_ += empty_field;
    if (field == empty_field) return add_raw("%2D");
    return add_raw(percent_encoded(field));
  }
  Line& add_number(std::uint64_t number) { return add(std::to_string(number)); }
  Line& add_number(std::int64_t number) { return add(std::to_string(number)); }
  Line& add_process(const ProcessId& id) {
    add_number(std::int64_t{id.pid}).add_number(id.started);
    return add_number(id.pid_space);
  }
  Line& add_who(const Who& who) {
    add(who.host).add_number(std::int64_t{who.pid});
    return add(who.user).add(who.command).add(who.label);
  }
  Line& add_backing(const Backing& backing) {
    add_number(std::int64_t{backing.by_process ? 1 : 0});
    return add_process(backing.process).add_process(backing.command).add(backing.mailbox);
  }
  std::string str() const { return text_ + '\n'; }

 private:
  Line& add_raw(std::string_view encoded) {
    text_ += encoded;
    return *this;
  }
  std::string text_;
};

std::string hold_line(const HoldEntry& hold) {
  Line line("hold");
  line.add(hold.token.text).add(hold.owner.text);
  line.add(flags.substr(static_cast<std::size_t>(hold.flag), 1));
  for (const std::int64_t number :
       {hold.at.count(), hold.since.count(), hold.lease.count(), hold.ttl.count(),
        hold.floor.count(), hold.limit.owners, hold.fence.value}) {
    line.add_number(number);
  }
  return line.add_who(hold.who).add_backing(hold.backing).str();
}

std::string waiter_line(const WaiterEntry& waiter) {
  Line line("wait");
  line.add(waiter.token.text).add(waiter.owner.text);
  for (const std::int64_t number :
       {waiter.ticket.value, waiter.seen.count(), waiter.told.count(), waiter.ttl.count(),
        waiter.floor.count(), waiter.limit.owners}) {
    line.add_number(number);
  }
  return line.add_who(waiter.who).add_backing(waiter.backing).str();
}

/// The text on its way in.
class Reader {
 public:
  Reader(std::string_view text, const std::string& where) : rest_(text), where_(where) {}

  [[noreturn]] void fail() const {
    throw Error(Trouble::wrong_data,
                where_ + " holds no lock of this version of dlock; if it is not needed, remove it");
  }

  std::string_view line() {
    const auto end = rest_.find('\n');
    if (end == std::string_view::npos) fail();
    const auto line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }

  /// Starts on the fields of the next line; answers its first.
  std::string_view open_line() {
    fields_ = line();
    return raw_field();
  }
  void close_line() const {
    if (!fields_.empty()) fail();
  }
  void close() const {
    if (!rest_.empty()) fail();
  }

  std::string text() {
    const auto field = raw_field();
    return field == empty_field ? std::string() : percent_decoded(field);
  }
  template <typename T>
  T number() {
    const auto field = raw_field();
    T value{};
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size()) fail();
    return value;
  }
  template <typename Span>
  Span span() {
    return Span(number<std::int64_t>());
  }
  ProcessId process() {
    ProcessId id;
    id.pid = number<pid_t>();
    id.started = number<std::uint64_t>();
    id.pid_space = number<std::uint64_t>();
    return id;
  }
  Who who() {
    Who who;
    who.host = text();
    who.pid = number<pid_t>();
    who.user = text();
    who.command = text();
    who.label = text();
    return who;
  }
  Backing backing() {
    Backing backing;
    backing.by_process = number<int>() != 0;
    backing.process = process();
    backing.command = process();
    backing.mailbox = text();
    return backing;
  }

 private:
  std::string_view raw_field() {
    if (fields_.empty()) fail();
    const auto end = fields_.find(' ');
    const auto field = fields_.substr(0, end);
    fields_ = end == std::string_view::npos ? std::string_view() : fields_.substr(end + 1);
    return field;
  }

  std::string_view rest_;
  std::string_view fields_;
  const std::string& where_;
};

HoldEntry read_hold(Reader& in) {
  HoldEntry hold;
  hold.token.text = in.text();
  hold.owner.text = in.text();
  const std::string flag = in.text();
  const auto place = flag.size() == 1 ? flags.find(flag) : std::string_view::npos;
  if (place == std::string_view::npos) in.fail();
  hold.flag = static_cast<Flag>(place);
  hold.at = in.span<microseconds>();
  hold.since = in.span<microseconds>();
  hold.lease = in.span<milliseconds>();
  hold.ttl = in.span<milliseconds>();
  hold.floor = in.span<milliseconds>();
  hold.limit.owners = in.number<std::int64_t>();
  hold.fence.value = in.number<std::int64_t>();
  hold.who = in.who();
  hold.backing = in.backing();
  return hold;
}

WaiterEntry read_waiter(Reader& in) {
  WaiterEntry waiter;
  waiter.token.text = in.text();
  waiter.owner.text = in.text();
  waiter.ticket.value = in.number<std::int64_t>();
  waiter.seen = in.span<microseconds>();
  waiter.told = in.span<microseconds>();
  waiter.ttl = in.span<milliseconds>();
  waiter.floor = in.span<milliseconds>();
  waiter.limit.owners = in.number<std::int64_t>();
  waiter.who = in.who();
  waiter.backing = in.backing();
  return waiter;
}

}  // namespace

std::string table_text(const LockKey& key, const LockTable& table) {
  std::string text(first_line);
  text += '\n';
  text += Line("key").add(key.text).str();
  text += Line("fence").add_number(table.last_fence.value).str();
  text += Line("asked").add_number(std::int64_t{table.last_ask.count()}).str();
  for (const HoldEntry& hold : table.holds) text += hold_line(hold);
  for (const WaiterEntry& waiter : table.queue) text += waiter_line(waiter);
  text += last_line;
  return text + '\n';
}

NamedTable parse_table(std::string_view text, const std::string& where) {
  Reader in(text, where);
  NamedTable named;
  if (in.line() != first_line) in.fail();
  if (in.open_line() != "key") in.fail();
  named.key.text = in.text();
  in.close_line();
  if (in.open_line() != "fence") in.fail();
  named.table.last_fence.value = in.number<std::int64_t>();
  in.close_line();
  if (in.open_line() != "asked") in.fail();
  named.table.last_ask = microseconds(in.number<std::int64_t>());
  in.close_line();
  while (true) {
    const auto kind = in.open_line();
    if (kind == last_line) break;
    if (kind == "hold") {
      named.table.holds.push_back(read_hold(in));
    } else if (kind == "wait") {
      named.table.queue.push_back(read_waiter(in));
    } else {
      in.fail();
    }
    in.close_line();
  }
  in.close_line();
  in.close();
  return named;
}

}  // namespace dlock
