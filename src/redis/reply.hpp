#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

struct redisReader;
struct redisReadTask;

namespace dlock {

/// One RESP2 value from a server.
struct Reply {
  enum class Kind { text, error, integer, nil, array };
  Kind kind = Kind::nil;
  std::string text;  ///< for the kinds text (bulk or status) and error
  std::int64_t integer = 0;
  std::vector<Reply> items;

  /// Whether it is an error, and of this class if one is given. Redis 6.2 wraps the class of a
  /// script's error in ERR, so is_error() searches the text for it.
  bool is_error(std::string_view code = "") const;
  bool is_array(std::size_t at_least) const;
};

/// Splits a reply of one line at its blanks into a list of items.
Reply in_items(Reply reply);

/// Turns the bytes of a connection into replies, by hiredis. Throws Error{unavailable} once the
/// bytes are not RESP, or announce an array that no server sends; the connection is then useless.
class ReplyReader {
 public:
  ReplyReader();
  ~ReplyReader();
  ReplyReader(ReplyReader&&) = delete;

  void feed(std::string_view bytes);
  /// The next complete reply, if there is one.
  std::optional<Reply> next();

 private:
  static Reply* place_of(const redisReadTask& task);

  struct Close {
    void operator()(redisReader* reader) const;
  };
  std::unique_ptr<redisReader, Close> reader_;
  Reply partial_;  ///< the reply that is being read
};

/// Returns the Error to throw for an error reply. It distinguishes all classes of the server and
/// never reads one as "held by another".
Error server_error(const Reply& reply);
/// The same, with `server` as the server's name in the message.
Error server_error(const Reply& reply, const std::string& server);

/// The same for a reply to AUTH. The message quotes only known text of the reply or its code, since
/// a server may repeat `credentials` after that.
Error auth_error(const Reply& reply, std::span<const std::string> credentials);

}  // namespace dlock
