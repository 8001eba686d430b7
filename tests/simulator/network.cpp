#include "simulator/network.hpp"

#include <algorithm>
#include <utility>

namespace dlock::sim {
namespace {

std::string ms(milliseconds span) { return std::to_string(span.count()) + " ms"; }

std::string text_of(Fence fence) { return std::to_string(fence.value); }

std::string text_of(const Granted& granted) {
  return "granted " + text_of(granted.fence) + " for " + ms(granted.lease);
}

std::string text_of(const Refused& refused) {
  return "refused, " + std::to_string(refused.holds.size()) + " inside, " +
         std::to_string(refused.ahead) + " ahead, ask again in " + ms(refused.ask_again);
}

std::string text_of(const Token& token) {
  return token.text.size() < 4 ? token.text : token.text.substr(token.text.size() - 4);
}

std::string text_of(const Request& request) {
  if (const auto* vote = std::get_if<Vote>(&request)) {
    const Ask& ask = vote->ask;
    return "vote for " + text_of(vote->claim.token) + " with " + text_of(vote->proposal) +
           (ask.wait ? ", waits" : "") +
           (ask.ticket ? " at " + std::to_string(ask.ticket->value) : "");
  }
  if (const auto* renewal = std::get_if<Renewal>(&request)) {
    return "renew " + text_of(renewal->claim.token) + " as " +
           text_of(renewal->terms.granted.value_or(Fence{}));
  }
  if (const auto* rejoining = std::get_if<Rejoining>(&request)) {
    return "rejoin " + text_of(rejoining->claim.token) + " as " + text_of(rejoining->fence);
  }
  if (const auto* release = std::get_if<WireRelease>(&request)) {
    return "release " + text_of(release->token) + (release->terms.unsure ? ", unsure" : "");
  }
  return "record_process for " + std::get<RecordProcess>(request).run;
}

std::string text_of(const Said& said) {
  std::string text = "done";
  if (const auto* answer = std::get_if<std::variant<Granted, Refused>>(&said.answer)) {
    text = std::visit([](const auto& each) { return text_of(each); }, *answer);
  } else if (const auto* granted = std::get_if<std::optional<Granted>>(&said.answer)) {
    text = *granted ? text_of(**granted) : "gone";
  } else if (const auto* released = std::get_if<Released>(&said.answer)) {
    text = *released == Released::yes          ? "released"
           : *released == Released::left_queue ? "left the queue"
                                               : "not held";
  }
  if (said.quarantine > milliseconds(0)) text += ", quarantined for " + ms(said.quarantine);
  if (said.remembered_run != said.run) text += ", not recorded";
  return text;
}

std::string text_of(const Message& message) {
  if (const auto* next = std::get_if<NextMessage>(&message)) return "next in " + ms(next->in);
  return "grant " + text_of(std::get<GrantMessage>(message).fence);
}

constexpr std::size_t ways = 2;

void count(const char* what) { World::here().count(what); }

}  // namespace

Network::Network(const Plan& plan, std::size_t clients)
    : plan_(plan), cut_until_(clients * plan.nodes * ways), latest_link_(clients * plan.nodes) {}

/// To acquire a lock takes up to two round trips, and the wait for the last node, within a sixth
/// of its ttl. After the healing, delays are short enough for that.
Span Network::delay(std::size_t node) {
  const Span jitter =
      healed_ ? std::min(plan_.most_jitter, Span(plan_.ttl) / 100) : plan_.most_jitter;
  const Span least = plan_.least_delay + (node == 0 ? plan_.further_away : Span(0));
  return World::here().chance().over_scales(least, least + jitter);
}

bool Network::loses() { return !healed_ && World::here().chance().one_in(plan_.lost_one_in); }
bool Network::resets() { return !healed_ && World::here().chance().one_in(plan_.reset_one_in); }
bool Network::doubles() { return !healed_ && World::here().chance().one_in(plan_.doubled_one_in); }

void Network::cut(std::size_t client, std::size_t node, Way way, Instant until) {
  Instant& end = cut_until_[(client * plan_.nodes + node) * ways + static_cast<std::size_t>(way)];
  end = std::max(end, until);
}

Instant Network::passes_from(std::size_t client, std::size_t node, Way way) const {
  return cut_until_[(client * plan_.nodes + node) * ways + static_cast<std::size_t>(way)];
}

void Network::heal() {
  healed_ = true;
  std::fill(cut_until_.begin(), cut_until_.end(), Instant{});
}

bool Network::overtaken(std::size_t client, std::size_t node, std::uint64_t number) {
  std::uint64_t& latest = latest_link_[client * plan_.nodes + node];
  latest = std::max(latest, number);
  return number < latest;
}

Link::Link(Network& network, Server& server, std::size_t client, std::size_t node,
           std::weak_ptr<LinkEnd> end, std::uint64_t number)
    : network_(network),
      server_(server),
      client_(client),
      node_(node),
      end_(std::move(end)),
      number_(number) {}

void Link::send(std::uint64_t number, Request request) {
  count("messages");
  if (network_.doubles()) {
    // Something on the way sends the request again, at any time.
    count("messages sent twice");
    const Span late = World::here().chance().over_scales(Span(0), 10 * network_.delay(node_));
    World::here().after(network_.delay(node_) + late,
                        [self = shared_from_this(), request] { self->arrive_again(request); });
  }
  put(Network::Way::up, [this, number, request = std::move(request)] { arrive(number, request); });
}

void Link::close(bool silently) {
  if (!std::exchange(client_open_, false) || silently) return;
  put(Network::Way::up, [this] {
    server_open_ = false;
    server_.listens_no_more(*this);
  });
}

void Link::put(Network::Way way, Delivery delivery) {
  Direction& direction = of(way);
  if (network_.loses() && !direction.dead) {
    direction.dead = true;
    count("links broken");
  }
  if (direction.dead) {
    count("messages dropped");
    return;
  }
  Instant at = World::here().now() + network_.delay(node_);
  if (!direction.under_way.empty()) at = std::max(at, direction.under_way.back().first);
  direction.under_way.emplace_back(at, std::move(delivery));
  World::here().at(at, [self = shared_from_this(), way] { self->deliver_next(way); });
}

void Link::deliver_next(Network::Way way) {
  Direction& direction = of(way);
  World& world = World::here();
  const Instant open = network_.passes_from(client_, node_, way);
  const Instant ready = way == Network::Way::up ? std::max(open, server_.thaw()) : open;
  if (ready > world.now()) {
    world.at(ready + Span(1), [self = shared_from_this(), way] { self->deliver_next(way); });
    return;
  }
  // Each put() causes one call; messages that were held up may be delivered with a later one.
  while (!direction.under_way.empty() && direction.under_way.front().first <= world.now()) {
    const Delivery delivery = std::move(direction.under_way.front().second);
    direction.under_way.pop_front();
    delivery();
  }
}

void Link::arrive(std::uint64_t number, const Request& request) {
  if (network_.overtaken(client_, node_, number_))
    count("messages overtaken by one on a later link");
  if (life_ == 0 && server_.up()) {
    life_ = server_.life();
    server_.connected(weak_from_this());
  }
  const bool there = server_.up() && server_open_ && life_ == server_.life();
  if (there) return serve(number, request);
  count("messages dropped");
  if (server_.up() || server_.refuses_links()) reset();
}

/// Executes a copy of a request; its reply is lost.
void Link::arrive_again(const Request& request) {
  const bool there =
      server_.up() && life_ == server_.life() && server_.thaw() <= World::here().now();
  if (!there) return;
  const Said said = server_.execute(request);
  World::here().tell([&] { return story_of(request) + ", once more: " + text_of(said); });
}

void Link::serve(std::uint64_t number, const Request& request) {
  const auto* vote = std::get_if<Vote>(&request);
  if (vote != nullptr && vote->ask.wait) {
    server_.listens(shared_from_this(), vote->claim.token);
  } else {
    server_.listens_no_more(*this);
  }
  if (network_.resets()) {
    // A process between client and server may die before or after the execution.
    count("links broken");
    const bool after = World::here().chance().one_in(2);
    if (after) static_cast<void>(server_.execute(request));
    World::here().tell(
        [&] { return story_of(request) + (after ? ": done, and" : ":") + " the link breaks"; });
    return reset();
  }
  const Said said = server_.execute(request);
  World::here().tell([&] { return story_of(request) + ": " + text_of(said); });
  put(Network::Way::down, [this, number, said] {
    const auto end = end_.lock();
    if (end && client_open_) end->heard(number_, number, said);
  });
}

std::string Link::story_of(const Request& request) const {
  return server_.name() + " <- c" + std::to_string(client_) + " " + text_of(request);
}

void Link::publish(const Message& message) {
  World::here().tell(
      [&] { return server_.name() + " -> c" + std::to_string(client_) + " " + text_of(message); });
  put(Network::Way::down, [this, message] {
    const auto end = end_.lock();
    if (end && client_open_) end->told(number_, message);
  });
}

void Link::reset() {
  server_open_ = false;
  server_.listens_no_more(*this);
  put(Network::Way::down, [this] {
    const auto end = end_.lock();
    if (std::exchange(client_open_, false) && end) end->broken(number_);
  });
}

}  // namespace dlock::sim
