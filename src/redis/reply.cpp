#include "redis/reply.hpp"

#include <hiredis/hiredis.h>

#include "base/duration.hpp"
#include "base/error.hpp"

namespace dlock {
namespace {

[[noreturn]] void not_redis(const std::string& what) {
  throw_unavailable("the answer is not that of a Redis server (" + what + ")",
                    Cause::other_protocol);
}

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};

Reply converted(const redisReply& from) {
  Reply reply;
  switch (from.type) {
    case REDIS_REPLY_ERROR:
      reply.kind = Reply::Kind::error;
      reply.text.assign(from.str, from.len);
      break;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
      reply.kind = Reply::Kind::text;
      reply.text.assign(from.str, from.len);
      break;
    case REDIS_REPLY_INTEGER:
      reply.kind = Reply::Kind::integer;
      reply.integer = from.integer;
      break;
    case REDIS_REPLY_ARRAY:
      reply.kind = Reply::Kind::array;
      for (std::size_t i = 0; i < from.elements; ++i) {
        reply.items.push_back(converted(*from.element[i]));
      }
      break;
    default:
      break;
  }
  return reply;
}

/// The length after `$` or `*`: -1 (nil), or a number without sign and leading zeros.
std::int64_t parse_length(std::string_view digits, std::int64_t largest) {
  if (digits == "-1") return -1;
  const auto length = parse_number(digits, 0, largest);
  if (!length) not_redis("a length that is no number or too large");
  if (digits.size() > 1 && digits.front() == '0') not_redis("a length with a leading zero");
  return *length;
}

void check_integer(std::string_view digits) {
  if (digits.starts_with('-')) digits.remove_prefix(1);
  if (!parse_number(digits, 0, INT64_MAX)) not_redis("an integer that is none");
}

}  // namespace

bool Reply::is_error(std::string_view code) const {
  return kind == Kind::error && text.starts_with(code);
}

bool Reply::is_array(std::size_t at_least) const {
  return kind == Kind::array && items.size() >= at_least;
}

void ReplyReader::Close::operator()(redisReader* reader) const { redisReaderFree(reader); }

ReplyReader::ReplyReader() : reader_(redisReaderCreate()) {
  if (!reader_) throw Error(ErrorKind::host_refused, "out of memory");
}

ReplyReader::~ReplyReader() = default;

void ReplyReader::feed(std::string_view bytes) { bytes_ += bytes; }

std::optional<Reply> ReplyReader::next() {
  if (!scan()) {
    if (bytes_.size() > largest_reply) not_redis("a reply of more than 8 MiB");
    return std::nullopt;
  }
  Reply reply = parse(std::string_view(bytes_).substr(0, scanned_));
  bytes_.erase(0, scanned_);
  scanned_ = 0;
  elements_ = 0;
  return reply;
}

bool ReplyReader::scan() {
  while (scanned_ < bytes_.size()) {
    const auto rest = std::string_view(bytes_).substr(scanned_);
    const auto end = rest.find("\r\n");
    if (end == std::string_view::npos || end > longest_line) {
      if (rest.size() > longest_line) not_redis("a line of more than 64 KiB");
      if (std::string_view("+-:$*").find(rest.front()) == std::string_view::npos) {
        not_redis("it does not speak RESP");
      }
      return false;
    }
    if (!scan_element(rest.substr(0, end))) return false;
    if (open_.empty()) return true;
  }
  return false;
}

bool ReplyReader::scan_element(std::string_view line) {
  std::size_t used = line.size() + 2;
  const auto body = line.empty() ? line : line.substr(1);
  std::int64_t members = 0;
  switch (line.empty() ? '\0' : line.front()) {
    case '+':
    case '-':
      break;
    case ':':
      check_integer(body);
      break;
    case '$': {
      const auto length = parse_length(body, longest_bulk);
      if (length < 0) break;
      const auto rest = std::string_view(bytes_).substr(scanned_ + used);
      const auto bytes = static_cast<std::size_t>(length);
      if (rest.size() < bytes + 2) return false;
      if (rest.substr(bytes, 2) != "\r\n") not_redis("a bulk string without its end");
      used += bytes + 2;
      break;
    }
    case '*':
      members = parse_length(body, largest_array);
      break;
    default:
      not_redis("it does not speak RESP");
  }
  scanned_ += used;
  if (members > 0) {
    if (open_.size() == deepest) not_redis("arrays nested too deep");
    elements_ += members;
    if (elements_ > most_elements) not_redis("a reply of more than 262144 elements");
    open_.push_back(members);
  } else {
    close_arrays();
  }
  return true;
}

void ReplyReader::close_arrays() {
  while (!open_.empty() && --open_.back() == 0) open_.pop_back();
}

Reply ReplyReader::parse(std::string_view frame) {
  void* parsed = nullptr;
  redisReaderFeed(reader_.get(), frame.data(), frame.size());
  if (redisReaderGetReply(reader_.get(), &parsed) != REDIS_OK || parsed == nullptr) {
    not_redis("hiredis cannot parse it");
  }
  const std::unique_ptr<redisReply, FreeReply> reply(static_cast<redisReply*>(parsed));
  return converted(*reply);
}

}  // namespace dlock
