#include <sys/random.h>

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "etcd/etcd_backend.hpp"

namespace dlock {
namespace {

using nlohmann::json;

/// The client chooses the ids of its leases, so that a request can be repeated.
std::int64_t random_lease_id() {
  std::int64_t id = 0;
  while (id == 0) {
    if (getrandom(&id, sizeof id, 0) != sizeof id) throw_errno("getrandom");
    id &= INT64_MAX;
  }
  return id;
}

EtcdRequest about_lease(const char* path, std::int64_t id) {
  return {path, {{"ID", std::to_string(id)}}};
}

/// Requests a new lease with the id of `lease`. etcd grants whole seconds.
EtcdRequest grant_request(const PlaceLease& lease) {
  EtcdRequest request = about_lease("lease/grant", lease.id);
  const auto whole = std::chrono::ceil<std::chrono::seconds>(lease.asked);
  request.fields["TTL"] = std::to_string(whole.count());
  return request;
}

}  // namespace

PlaceLease EtcdBackend::grant(milliseconds asked, const CallOptions& call_options) {
  PlaceLease lease{random_lease_id(), asked, {}, BootClock::now()};
  take_grant(lease,
             client_.ask({grant_request(lease)}, EtcdClient::Repeat::yes, call_options).front());
  return lease;
}

milliseconds EtcdBackend::span_of(const EtcdAnswer& answer, const char* name) const {
  if (const auto span = span_in(answer.fields, name)) return *span;
  throw_unavailable(
      client_.name() + ": an answer that is not etcd's: no lease has such a " + std::string(name),
      Cause::other_reply);
}

/// Stores the answer to a request that granted a lease.
void EtcdBackend::take_grant(PlaceLease& lease, const EtcdAnswer& answer) const {
  // The lease exists: an earlier try of this call has granted it, and its answer was lost.
  if (answer.code == EtcdCode::failed_precondition) {
    lease.length = std::chrono::ceil<std::chrono::seconds>(lease.asked);
    return;
  }
  take_lease(lease, answer);
}

/// Stores the answer to a request that renewed a lease.
void EtcdBackend::take_lease(PlaceLease& lease, const EtcdAnswer& answer) const {
  if (answer.code == EtcdCode::not_found) {
    lease.id = 0;
    return;
  }
  if (answer.code != EtcdCode::ok) client_.refuse(answer);
  lease.length = span_of(answer, "TTL");
  if (lease.length == milliseconds(0)) lease.id = 0;
}

void EtcdBackend::renew(PlaceLease& lease, const CallOptions& call_options) {
  const Deadline sent = BootClock::now();
  const auto answers = client_.ask({about_lease("lease/keepalive", lease.id)},
                                   EtcdClient::Repeat::yes, call_options);
  take_lease(lease, answers.front());
  lease.sent = sent;
}

Snapshot EtcdBackend::read_with(PlaceLease& lease, const std::string& name,
                                const CallOptions& call_options) {
  const Deadline sent = BootClock::now();
  PlaceLease next = lease;
  const bool is_new = lease.id == 0;
  if (is_new) next.id = random_lease_id();
  const EtcdRequest about = is_new ? grant_request(next) : about_lease("lease/keepalive", next.id);
  const EtcdRequest range{"kv/range", range_fields(name, name + static_cast<char>('\n' + 1))};
  const auto answers = client_.ask({about, range}, EtcdClient::Repeat::yes, call_options);
  is_new ? take_grant(next, answers.front()) : take_lease(next, answers.front());
  next.sent = sent;
  lease = next;
  if (answers.back().code != EtcdCode::ok) client_.refuse(answers.back());
  const json& fields = answers.back().fields;
  return snapshot_from(name, revision_in(fields), range_in(fields), sent, call_options);
}

void EtcdBackend::revoke(const std::vector<std::int64_t>& leases, const CallOptions& call_options) {
  std::vector<EtcdRequest> requests;
  for (const std::int64_t id : leases) requests.push_back(about_lease("lease/revoke", id));
  const auto answers = client_.ask(requests, EtcdClient::Repeat::yes, call_options);
  for (const EtcdAnswer& answer : answers) {
    const bool has_ended = answer.code == EtcdCode::ok || answer.code == EtcdCode::not_found;
    if (!has_ended) client_.refuse(answer);
  }
}

std::vector<CasLeases::Left> EtcdBackend::left_of(const std::vector<std::int64_t>& leases,
                                                  const CallOptions& call_options) {
  // Each request has a connection of its own.
  constexpr std::size_t at_once = 8;
  std::vector<Left> all;
  for (std::size_t first = 0; first < leases.size(); first += at_once) {
    std::vector<EtcdRequest> requests;
    for (std::size_t i = first; i < std::min(first + at_once, leases.size()); ++i) {
      requests.push_back(about_lease("lease/timetolive", leases[i]));
    }
    for (const EtcdAnswer& answer : client_.ask(requests, EtcdClient::Repeat::yes, call_options)) {
      const bool known = answer.code == EtcdCode::ok || answer.code == EtcdCode::not_found;
      if (!known) client_.refuse(answer);
      Left left{span_of(answer, "grantedTTL")};
      // Before etcd 3.4.32 and 3.5.14, a leader that is being replaced no longer knows when the
      // lease ends, and reports 292 years.
      left.left = span_in(answer.fields, "TTL").value_or(left.length);
      // etcd reports whole seconds, rounded down.
      const bool lives = left.length > milliseconds(0) && number_in(answer.fields, "TTL") >= 0;
      if (lives) left.left = std::min(left.length, left.left + milliseconds(999));
      all.push_back(left);
    }
  }
  return all;
}

}  // namespace dlock
