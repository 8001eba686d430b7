#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "quorum/node_clients.hpp"

namespace dlock {

/// The answers of the members of a quorum about one latch, and what follows from it. Knows no clock
/// and asks nobody: QuorumLatches does.
///
/// A latch has a generation, and is what a majority has of one: whatever a member has of another,
/// which ended without its hearing of it, counts nothing, and it gets the majority's in its place.
/// Where several opened it at the same time and none was first at a majority, the smallest of
/// theirs is taken, with all who have arrived at any of them.
class LatchViews {
 public:
  LatchViews(LockKey key, std::size_t members) : key_(std::move(key)), views_(members) {}

  /// The members are asked for the sake of opening it: what all of them are asked first. Nobody is
  /// asked who has arrived.
  NodeRequest propose(const LatchTerms& terms);
  /// From here on all are to be asked again; with `listen`, those that have the latch are to tell
  /// of changes. `woken`: somebody has just arrived, and may be on the way to members that lack
  /// him.
  void begin(bool listen, bool woken);
  /// Takes the answer of `member`: an optional LatchPart, or an Error.
  void take(std::size_t member, const Response& response);
  /// Its news channel broke.
  void take_silence(std::size_t member, const Error& why);

  const LockKey& key() const { return key_; }
  std::size_t known(std::size_t member) const { return views_[member].arrived.size(); }
  std::size_t with_it() const;     ///< have a latch of this name
  std::size_t without_it() const;  ///< do not
  std::size_t silent() const;      ///< have not answered yet
  bool is_silent(std::size_t member) const;
  /// Has one, and another member has a later one.
  bool is_older(std::size_t member) const;
  std::size_t listening() const;  ///< tell of changes
  /// Whether it is decided by those that answered, or may yet be by the others.
  bool may_be_decided() const;
  std::vector<std::optional<Error>> troubles() const;

  /// Whether a majority has one and the same.
  bool is_agreed() const { return agreed().has_value(); }
  /// As those that have the majority's know it together; without one, as all do that have any.
  /// Throws Error{wrong_data} where these count to different numbers.
  LatchState state() const;

  enum class Verdict { undecided, gone, shut, open };
  Verdict verdict() const;
  /// Whether what was proposed is there at a majority, or a latch for another count is.
  bool is_opened() const;

  /// The others may be out of reach: from here on what some have is what all are to have.
  void mend_by_few() { by_few_ = true; }
  /// What `member`, which owes no answer, is now asked, if anything is not as it is to be there.
  std::optional<NodeRequest> next_for(std::size_t member);

 private:
  /// Which latch of this name.
  struct Which {
    std::int64_t count = 0;
    std::string generation;
    auto operator<=>(const Which&) const = default;
  };
  struct View {
    enum class State { silent, failed, absent, present };
    State state = State::silent;
    LatchState latch;
    std::set<ArrivalId> arrived;  ///< as far as they were read
    bool mending = false;         ///< what it was asked last is no reading
    std::string asked_for;        ///< then: the generation that it was to have
    bool mended = false;          ///< it has answered that it has that
    bool listening = false;
    std::optional<Error> trouble;
    bool is_read() const;
    bool has(const Which& which) const;
    Which which() const { return {latch.count, latch.generation}; }
  };

  std::size_t majority() const { return views_.size() / 2 + 1; }
  template <typename Is>
  std::size_t number_of(const Is& is) const;
  std::optional<Which> agreed() const;
  /// The state that all are to have.
  std::optional<Which> aim() const;
  std::optional<Which> newest() const;
  bool is_proposed(const Which& which) const;
  bool may_join(const View& view, const Which& aim) const;
  const std::set<ArrivalId>& arrived_at(const Which& which) const;
  std::vector<ArrivalId> missing_at(const View& view, const Which& which) const;
  milliseconds left_of(const Which& which) const;
  bool is_to_read(const View& view) const;
  std::optional<NodeRequest> mend(View& view, const Which& which);
  std::optional<NodeRequest> displace(View& view, const Which& which);

  LockKey key_;
  std::vector<View> views_;
  std::map<Which, std::set<ArrivalId>> arrived_;  ///< at any member that has this one
  std::optional<LatchTerms> proposal_;
  bool listen_ = false;
  bool woken_ = false;
  bool by_few_ = false;
};

}  // namespace dlock
