#include <algorithm>
#include <cstdint>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/finding.hpp"
#include "doctor/redis_checks.hpp"

namespace dlock {
namespace {

/// A setting by CONFIG, or by INFO, which has some settings under other names, if the user may not
/// call CONFIG.
std::optional<std::string> setting(const ServerFacts& facts, const char* name,
                                   const char* in_info) {
  if (auto text = facts.config.text(name)) return text;
  return facts.info.text(in_info);
}

/// How much of the data survives a crash.
enum class Keeping { unknown, nothing, snapshots, most, last_second, all };

Keeping keeping_of(const ServerFacts& facts) {
  const auto appends = setting(facts, "appendonly", "aof_enabled");
  const auto saves = facts.config.text("save");
  if (appends == "yes" || appends == "1") {
    const auto fsync = facts.config.text("appendfsync");
    const bool skips_some = facts.config.text("no-appendfsync-on-rewrite") == "yes";
    if (fsync == "always") return skips_some ? Keeping::most : Keeping::all;
    return fsync == "no" ? Keeping::most : Keeping::last_second;
  }
  if (!appends) return Keeping::unknown;
  return saves == "" ? Keeping::nothing : Keeping::snapshots;
}

struct Replicas {
  long long connected = 0;
  long long in_step = 0;
  long long lag = 0;  ///< of the slowest replica that is in step, in seconds
};

/// The lag in a line such as `ip=10.0.0.2,port=6379,state=online,offset=42,lag=1`; infinite if
/// missing.
long long lag_in(const std::string& line) {
  const auto at = line.find("lag=");
  if (at == std::string::npos) return INT64_MAX;
  const auto text = line.substr(at + 4, line.find(',', at) - at - 4);
  return parse_number(text, 0, INT64_MAX).value_or(INT64_MAX);
}

Replicas replicas_of(const ServerFacts& facts, long long most_lag) {
  Replicas all;
  all.connected = facts.info.number("connected_slaves").value_or(0);
  for (long long i = 0; i < std::min(all.connected, 1000LL); ++i) {
    const auto line = facts.info.text("slave" + std::to_string(i));
    if (!line || line->find("state=online") == std::string::npos) continue;
    const long long lag = lag_in(*line);
    if (lag > most_lag) continue;
    ++all.in_step;
    all.lag = std::max(all.lag, lag);
  }
  return all;
}

}  // namespace

Finding judge_eviction(const ServerFacts& facts) {
  const auto policy = setting(facts, "maxmemory-policy", "maxmemory_policy");
  const auto most = setting(facts, "maxmemory", "maxmemory");
  if (!policy || !most) return not_told(refusals(facts));
  const std::string shown = escaped(*policy);
  if (*most == "0") return good("none: maxmemory 0 (policy " + shown + ")");
  if (*policy == "noeviction") return good("none: noeviction");
  return bad(shown + ": a full server evicts held locks, and another client can acquire them",
             "CONFIG SET maxmemory-policy noeviction");
}

Finding judge_memory(const ServerFacts& facts) {
  const auto used = facts.info.number("used_memory");
  const auto most = facts.info.number("maxmemory");
  if (!used || !most) return not_told(refusals(facts));
  const std::string text = size_text(*used) + " used";
  if (*most == 0) return good(text + ", no limit set");
  const std::string of = text + " of " + size_text(*most);
  if (*used >= *most) return bad(of + ": full", "raise maxmemory, or make room");
  if (*used > *most / 10 * 9) {
    return warn(of + ": once it is full, no lock can be taken", "raise maxmemory, or make room");
  }
  return good(of);
}

Finding judge_persistence(const ServerFacts& facts) {
  const std::string advice = "CONFIG SET appendonly yes, and in its redis.conf";
  if (facts.info.text("aof_last_write_status").value_or("ok") != "ok") {
    return bad("writing to disk fails", "fix its disk: see its log");
  }
  switch (keeping_of(facts)) {
    case Keeping::unknown:
      return not_told(refusals(facts));
    case Keeping::nothing:
      return warn(
          "none: a restart forgets held locks, so two may run at once; fences then "
          "depend only on its clock",
          advice);
    case Keeping::snapshots:
      return warn(
          "snapshots at most: a crash forgets the locks since the last one; fences then "
          "depend only on its clock",
          advice);
    case Keeping::most:
      if (facts.config.text("appendfsync") == "always") {
        return warn(
            "no-appendfsync-on-rewrite yes: while its log is rewritten, a power cut "
            "forgets the newest locks",
            "CONFIG SET no-appendfsync-on-rewrite no");
      }
      return warn("appendonly, appendfsync no: a power cut forgets half a minute of locks",
                  "CONFIG SET appendfsync everysec, or always");
    case Keeping::last_second: {
      const auto fsync = facts.config.text("appendfsync");
      const std::string how = fsync ? "appendfsync " + escaped(*fsync)
                                    : "appendfsync not told (" + refusals(facts) + ")";
      return good("appendonly, " + how + ": a power cut may forget the last second's locks");
    }
    case Keeping::all:
      break;
  }
  return good("appendonly, appendfsync always: locks and fences outlive a crash");
}

Finding judge_replication(const ServerFacts& facts) {
  constexpr long long usual_lag = 10;
  if (!facts.info.number("connected_slaves")) return not_told(refusals(facts));
  const auto most_lag = facts.config.number("min-replicas-max-lag").value_or(usual_lag);
  const auto least = facts.config.number("min-replicas-to-write");
  const Replicas replicas = replicas_of(facts, most_lag > 0 ? most_lag : usual_lag);
  const std::string there = counted(replicas.connected, "replica");
  if (facts.exam.replicas > replicas.in_step) {
    return bad("--replicas " + std::to_string(facts.exam.replicas) + ", but " +
                   counted(replicas.in_step, "replica") + " in step: no lock can be taken",
               "connect more replicas, or a smaller --replicas");
  }
  if (least.value_or(0) > replicas.in_step) {
    return bad("min-replicas-to-write " + std::to_string(*least) + ", but " +
                   counted(replicas.in_step, "replica") + " in step: no lock can be taken",
               "bring its replicas back");
  }
  if (replicas.in_step < replicas.connected) {
    return warn(counted(replicas.connected - replicas.in_step, "replica") + " of " +
                    std::to_string(replicas.connected) + " not in step: a failover to one " +
                    "forgets locks",
                "see INFO replication, there and here");
  }
  if (facts.exam.topology == Topology::cluster && replicas.connected == 0) {
    return warn("no replica: if this master fails, its locks are lost",
                "give every master a replica");
  }
  if (facts.exam.topology == Topology::sentinel && replicas.connected == 0) {
    return warn("no replica: there is nothing to fail over to", "connect a replica");
  }
  if (facts.exam.topology == Topology::sentinel && least == 0) {
    return warn(there +
                    ", min-replicas-to-write 0: a master cut off from them goes on granting "
                    "locks that the next one does not know",
                "CONFIG SET min-replicas-to-write 1, on each of them");
  }
  if (replicas.connected == 0) return good("no replicas");
  return good(there + ", at most " + std::to_string(replicas.lag) + " s behind" +
              (least.value_or(0) > 0 ? ", min-replicas-to-write " + std::to_string(*least) : ""));
}

Finding judge_uptime(const ServerFacts& facts) {
  const auto seconds = facts.info.number("uptime_in_seconds");
  if (!seconds) return not_told(refusals(facts));
  // A longer time would overflow when it is shown.
  const std::chrono::seconds up(std::min<long long>(*seconds, 100'000'000'000));
  const std::string text = "started " + human_duration(up) + " ago";
  if (up >= facts.exam.ttl || keeping_of(facts) == Keeping::all) return good(text);
  const auto left = std::chrono::ceil<std::chrono::seconds>(facts.exam.ttl - up);
  return warn(text + ", less than the ttl of " + human_duration(facts.exam.ttl) +
                  ": an earlier holder may still run",
              "trust new locks in " + human_duration(left));
}

Finding judge_restart(const ServerFacts& facts) {
  const bool remembers = keeping_of(facts) == Keeping::all;
  return good(remembers ? "appendonly, appendfsync always: votes again at once"
                        : "has no vote for two minutes afterwards");
}

Finding judge_vote(const ServerFacts& facts) {
  if (!facts.quarantined_for) return not_told("the lock that was tried");
  if (*facts.quarantined_for == milliseconds(0)) return good("has one");
  return warn(
      "none for another " + human_duration(*facts.quarantined_for) +
          ": restarted or flushed, or it has evicted keys: it may have forgotten a lease",
      "wait; appendonly yes and appendfsync always keep the vote over a restart, if dlock's user "
      "may CONFIG GET");
}

Finding judge_label(const ServerFacts& facts) {
  const std::string label = "best effort: ";
  const auto replicas = facts.info.number("connected_slaves").value_or(0);
  if (facts.exam.topology != Topology::single || replicas > 0) {
    return good(label + "replication is asynchronous, so a failover may forget the newest " +
                "locks" + (facts.exam.replicas > 0 ? ", rarely with --replicas" : ""));
  }
  const char* why = "if this one server crashes, it may forget locks";
  switch (keeping_of(facts)) {
    case Keeping::unknown:
    case Keeping::most:
      break;
    case Keeping::nothing:
      why = "if this one server restarts, every lock is forgotten";
      break;
    case Keeping::snapshots:
      why = "if this one server crashes, it goes back to its last snapshot";
      break;
    case Keeping::last_second:
      why = "if this one server loses power, its last second is forgotten";
      break;
    case Keeping::all:
      why = "locks are lost with this one server's disk, and with a replica put in its place";
      break;
  }
  return good(label + why);
}

}  // namespace dlock
