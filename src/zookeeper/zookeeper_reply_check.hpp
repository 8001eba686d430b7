#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlock {

/// Hears the names of a node's children as they arrive: nobody bounds how many there are.
class ChildListener {
 public:
  virtual ~ChildListener() = default;
  /// A list begins; once more, if the connection of an earlier one was lost.
  virtual void begin() = 0;
  virtual void hear(std::string_view name) = 0;
};

/// Reads along what libzookeeper asks over one connection and what the server replies. The library
/// takes a reply for what it has asked for without a look at its length, its counts or whether it
/// has asked for anything, and reads and frees what was never there: it is given only replies that
/// are whole, of the shape that the request calls for, and of a size that it can hold.
class ZooKeeperReplyCheck {
 public:
  /// Of a connection on which the library has sent nothing but its request for a session: for this
  /// one that it has had; 0: for a new one.
  explicit ZooKeeperReplyCheck(std::int64_t session) : session_(session) {}

  /// Who hears the children of `path`, asked for from now on; the library is told that it has none.
  /// Nobody hears them if `listener` is null.
  void listen(const std::string& path, ChildListener* listener);

  /// Takes what the library sends, in pieces of any size.
  void note_request(std::string_view bytes);

  /// Takes what the server sends, in pieces of any size: returns the replies that are whole by now.
  std::string take(std::string_view bytes);

  /// What came last is no reply to what was asked. No more will be returned.
  bool is_broken() const { return is_broken_; }

  /// The longest reply but for a list that a listener hears, which is what ZooKeeper's own client
  /// takes if it is not told otherwise.
  static constexpr std::int32_t longest = 0xfffff;
  /// The most children of a node without a listener.
  static constexpr std::int32_t most_names = 50'000;

 private:
  struct Asked {
    std::int32_t number = 0;
    std::int32_t operation = 0;
    std::vector<std::int32_t> parts{};  ///< the operations of a multi-request
    bool has_listener = false;
  };
  /// The rest of a list that has begun to arrive.
  struct Arriving {
    std::string head;  ///< of its reply, up to the number of names
    std::int32_t bytes = 0;
    std::int32_t names = 0;
  };

  Asked request_in(std::string_view frame) const;
  bool begins_list(std::string_view& rest);
  bool has_heard_list(std::string_view& rest);
  bool is_reply(std::string_view frame);
  bool gives_session(std::string_view frame);
  bool answers(std::string_view frame);

  std::int64_t session_;
  std::string path_;
  ChildListener* listener_ = nullptr;
  std::optional<Arriving> list_;
  bool has_session_ = false;
  bool is_broken_ = false;
  std::string requested_;     ///< not yet a whole request
  std::string heard_;         ///< not yet a whole reply
  std::deque<Asked> asked_;   ///< and not replied to; replies come in their order
  int logins_ = 0;            ///< asked for; the reply to one may overtake others
  int restored_watches_ = 0;  ///< the same
};

}  // namespace dlock
