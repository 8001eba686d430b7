#include <utility>

#include "base/error.hpp"
#include "base/escape.hpp"
#include "compat/lock_driver.hpp"
#include "compat/recognise.hpp"
#include "compat/symfony_evict_script.hpp"
#include "compat/symfony_release_script.hpp"
#include "compat/symfony_renew_script.hpp"
#include "compat/symfony_take_script.hpp"

namespace dlock {
namespace {

/// A sorted set with a member for each holder, which is scored by the end of its lease, and one
/// that says that it is exclusive.
class SymfonyDriver final : public LockDriver {
 public:
  using LockDriver::LockDriver;

  HoldMark name_of(const Token& token) const override {
    const std::string member = base64url_of(token);
    return {member, member};
  }
  ScriptRun take(const std::string& key, const HoldMark& name, milliseconds ttl) const override {
    return {symfony_take, symfony_take_sha1, {key}, {name.written, std::to_string(ttl.count())}};
  }
  ScriptRun renew(const std::string& key, const HoldMark& name, milliseconds ttl) const override {
    return {symfony_renew, symfony_renew_sha1, {key}, {name.proof, std::to_string(ttl.count())}};
  }
  ScriptRun release(const std::string& key, const HoldMark& name) const override {
    return {symfony_release, symfony_release_sha1, {key}, {name.proof}};
  }
  ScriptRun evict(const std::string& key, const std::string& victim) const override {
    return {symfony_evict, symfony_evict_sha1, {key}, {victim}};
  }
  std::vector<Request> look(const std::string& key) const override {
    return {{"PTTL", key}, {"ZRANGE", key, "0", "1"}};
  }
  std::optional<Holder> seen_in(const std::string& key,
                                const std::vector<Reply>& replies) const override {
    if (!replies[1].is_array(1)) return std::nullopt;
    const auto& members = replies[1].items;
    for (const Reply& member : members) {
      if (is_symfony_member(member.text)) continue;
      throw Error(ErrorKind::wrong_data,
                  escaped(key) + " is a sorted set that Symfony did not write, which --compat " +
                      layout().row->name + " does not share");
    }
    return holder_of(replies[0], members[0].text, members.size() > 1 ? members[1].text : "");
  }
  std::size_t parts_of_a_refusal() const override { return 4; }
  Holder holder_in(const std::string&, const Reply& answer) const override {
    return holder_of(answer.items.at(1), answer.items.at(2).text, answer.items.at(3).text);
  }

 private:
  static Holder holder_of(const Reply& pttl, const std::string& first, const std::string& second) {
    Holder holder = foreign_holder("Symfony Lock or dlock", pttl);
    const bool is_exclusive = first == "__write__" || second == "__write__";
    if (!is_exclusive) holder.limit = no_limit;
    return holder;
  }
};

}  // namespace

std::unique_ptr<LockDriver> symfony_driver(Layout layout, bool cluster) {
  return std::make_unique<SymfonyDriver>(std::move(layout), cluster);
}

}  // namespace dlock
