#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace dlock {

/// Reads along what libzookeeper asks over one connection and what the server replies. The library
/// takes a reply for what it has asked for without a look at its length, its counts or whether it
/// has asked for anything, and reads and frees what was never there: it is given only replies that
/// are whole, of the shape that the request calls for, and of a size that it can hold.
class ZooKeeperReplyCheck {
 public:
  /// Of a connection on which the library has sent nothing but its request for a session: for this
  /// one that it has had; 0: for a new one.
  explicit ZooKeeperReplyCheck(std::int64_t session) : session_(session) {}

  /// What the library sends, in pieces of any size.
  void note_request(std::string_view bytes);

  /// What the server sends, in pieces of any size: returns the replies that are whole by now.
  std::string take(std::string_view bytes);

  /// What came last is no reply to what was asked. No more will be returned.
  bool is_broken() const { return is_broken_; }

  /// The longest reply, which is what ZooKeeper's own client takes if it is not told otherwise.
  static constexpr std::int32_t longest = 0xfffff;
  /// The most children of a node.
  static constexpr std::int32_t most_names = 50'000;

 private:
  struct Asked {
    std::int32_t number = 0;
    std::int32_t operation = 0;
    std::vector<std::int32_t> parts{};  ///< the operations of a multi-request
  };

  static Asked request_in(std::string_view frame);
  bool is_reply(std::string_view frame);
  bool gives_session(std::string_view frame);
  bool answers(std::string_view frame);

  std::int64_t session_;
  bool has_session_ = false;
  bool is_broken_ = false;
  std::string requested_;     ///< not yet a whole request
  std::string heard_;         ///< not yet a whole reply
  std::deque<Asked> asked_;   ///< and not replied to; replies come in their order
  int logins_ = 0;            ///< asked for; the reply to one may overtake others
  int restored_watches_ = 0;  ///< the same
};

}  // namespace dlock
