#include "compat/release_news.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

constexpr const char* invalidations = "__redis__:invalidate";
constexpr milliseconds longest_set_up{1000};
constexpr milliseconds between_set_ups{1000};

}  // namespace

bool ReleaseNews::is_set_up_for(const LinkId& link,
                                const std::vector<std::string>& channels) const {
  const bool same = link_ == link && channels_ == channels;
  const bool is_broken = listener_ && !listener_->is_open();
  return same && (!is_broken || BootClock::now() < again_at_);
}

bool ReleaseNews::listen(const LinkId& link, const std::string& key,
                         const std::vector<std::string>& channels,
                         const CallOptions& call_options) {
  key_ = key;
  if (is_set_up_for(link, channels)) return false;
  close();
  channels_ = channels;
  RedisClient& client = *link.client;
  try {
    const auto until = std::min(call_options.deadline, later(BootClock::now(), longest_set_up));
    open(client, {until, call_options.cancel_fd});
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    tracks_ = hears_ = false;
  }
  link_ = {&client, client.links()};
  again_at_ = later(BootClock::now(), between_set_ups);
  return works();
}

void ReleaseNews::open(RedisClient& client, const CallOptions& call_options) {
  listener_.emplace(std::make_unique<FixedEndpoint>(client.connect(call_options)));
  std::vector<Request> requests{{"CLIENT", "ID"}, {"SUBSCRIBE", invalidations}};
  for (const std::string& channel : channels_) requests.push_back({"SUBSCRIBE", channel});
  const auto replies = listener_->exchange(requests, call_options);
  // A release may be told on one of them alone.
  hears_ = !channels_.empty() && std::none_of(replies.begin() + 2, replies.end(),
                                              [](const Reply& reply) { return reply.is_error(); });
  if (!replies[0].is_error() && !replies[1].is_error()) {
    track(client, replies[0].integer, call_options);
  }
  if (!works()) listener_.reset();
}

void ReleaseNews::track(RedisClient& client, std::int64_t listener,
                        const CallOptions& call_options) {
  const auto replies = client.read_here(
      {{"CLIENT", "TRACKING", "ON", "REDIRECT", std::to_string(listener)}}, call_options);
  tracks_ = !replies.front().is_error();
}

bool ReleaseNews::concerns_us(const Published& message) const {
  // The server tells of no key when it has dropped all of them.
  const bool dropped_all = message.channel == invalidations && message.payload.empty();
  const bool is_of_key = !channels_.empty() && message.channel == channels_.front();
  return dropped_all || is_of_key || message.payload == key_;
}

Wake::Reason ReleaseNews::await(Deadline until, int cancel_fd) {
  try {
    while (listener_ && listener_->is_open()) {
      const auto message = listener_->next_message({until, cancel_fd});
      if (!message) return Wake::Reason::due;
      if (concerns_us(*message)) {
        const Wake::Reason reason = paced(until, cancel_fd);
        // A release is told on each channel and by the server: what came along is read with it.
        while (listener_->next_message({BootClock::now(), -1})) {
        }
        return reason;
      }
      if (BootClock::now() >= until) return Wake::Reason::due;
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) return Wake::Reason::interrupted;
    tracks_ = hears_ = false;
    // Somebody ends listeners as fast as they come: no faster than a poll.
    until = std::min(until, later(BootClock::now(), milliseconds(100)));
  }
  return sleep_until(until, cancel_fd) ? Wake::Reason::interrupted : Wake::Reason::due;
}

/// Each renewal of the holder wakes, too. Behind a short lease the waiter therefore asks twice a
/// second in the long run, and at once as long as that has been kept.
Wake::Reason ReleaseNews::paced(Deadline until, int cancel_fd) {
  constexpr milliseconds each{500};
  constexpr milliseconds ahead{4000};
  const auto now = BootClock::now();
  pace_ = std::max(pace_, now) + each;
  if (pace_ <= now + ahead) return Wake::Reason::due;
  const bool is_cancelled = sleep_until(std::min(until, pace_ - ahead), cancel_fd);
  return is_cancelled ? Wake::Reason::interrupted : Wake::Reason::due;
}

void ReleaseNews::close() {
  listener_.reset();
  link_ = {};
  tracks_ = hears_ = false;
}

}  // namespace dlock
