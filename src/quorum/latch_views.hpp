#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "quorum/council.hpp"

namespace dlock {

/// What the members of a quorum have said of one latch, and what follows from it. Knows no clock
/// and asks nobody: QuorumStore does.
class LatchViews {
 public:
  LatchViews(LockKey key, std::size_t members) : key_(std::move(key)), views_(members) {}

  /// From here on all are to be asked again; with `listen`, those that have the latch are to tell
  /// of changes. `woken`: somebody has just arrived, and may be on the way to members that lack
  /// him.
  void begin(bool listen, bool woken);
  /// What `member` said: an optional LatchPart, or an Error.
  void take(std::size_t member, const Response& response);
  /// Its news channel broke.
  void take_silence(std::size_t member, const Error& why);

  const LockKey& key() const { return key_; }
  std::size_t known(std::size_t member) const { return views_[member].arrived.size(); }
  std::size_t with_it() const;     ///< have the latch
  std::size_t without_it() const;  ///< do not
  std::size_t silent() const;      ///< have not answered yet
  bool is_silent(std::size_t member) const;
  std::size_t listening() const;  ///< tell of changes
  /// Whether it is decided by those that answered, or may yet be by the others.
  bool may_be_decided() const;
  std::vector<std::optional<Error>> troubles() const;

  /// To how many the majority counts; nothing where there is none.
  std::optional<std::int64_t> agreed_count() const;
  /// As those that have it know it together. Throws Error{wrong_data} where they count to different
  /// numbers.
  LatchState state() const;

  enum class Verdict { undecided, gone, shut, open };
  Verdict verdict() const;

  /// The others may be out of reach: from here on one that lacks the latch gets it from a minority.
  void mend_by_few() { by_few_ = true; }
  /// What `member`, which owes no answer, is now asked, if anything is not as it is to be there.
  std::optional<Inquiry> next_for(std::size_t member);

 private:
  struct View {
    enum class State { silent, failed, absent, present };
    State state = State::silent;
    LatchState latch;
    std::set<ArrivalId> arrived;  ///< as far as they were read
    bool mending = false;         ///< what it was asked last is no reading
    bool listening = false;
    std::optional<Error> trouble;
    bool is_read() const;
  };

  std::size_t majority() const { return views_.size() / 2 + 1; }
  template <typename Is>
  std::size_t number_of(const Is& is) const;
  bool enough_arrived(std::int64_t count) const;
  std::vector<ArrivalId> missing_at(const View& view) const;

  LockKey key_;
  std::vector<View> views_;
  std::set<ArrivalId> arrived_;  ///< anywhere
  bool listen_ = false;
  bool woken_ = false;
  bool by_few_ = false;
};

}  // namespace dlock
