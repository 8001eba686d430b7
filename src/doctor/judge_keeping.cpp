#include <algorithm>
#include <cstdint>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/judge.hpp"
#include "doctor/words.hpp"

namespace dlock {
namespace {

/// CONFIG tells most; where it is forbidden, INFO has some of it under names of its own.
std::optional<std::string> setting(const ServerFacts& facts, const char* name,
                                   const char* in_info) {
  if (auto text = facts.config.text(name)) return text;
  return facts.info.text(in_info);
}

/// How much of what was written is there again after a crash.
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
  long long lag = 0;  ///< in seconds, of the slowest that is in step
};

/// Out of `ip=10.0.0.2,port=6379,state=online,offset=42,lag=1`; one that does not say lags for
/// ever.
long long lag_in(const std::string& line) {
  const auto at = line.find("lag=");
  if (at == std::string::npos) return INT64_MAX;
  const auto text = line.substr(at + 4, line.find(',', at) - at - 4);
  return parse_number(text, 0, INT64_MAX).value_or(INT64_MAX);
}

Replicas replicas_of(const ServerFacts& facts, long long most_lag) {
  Replicas all;
  all.connected = facts.info.number("connected_slaves").value_or(0);
  // Those of a server that lies about their number are looked for in vain, one after another.
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

/// How fast the server's clock runs beside this host's: the pace that fits the readings and is
/// nearest to 1.
double pace_of(const std::vector<ClockSample>& clock) {
  const ClockSample& first = clock.front();
  const ClockSample& last = clock.back();
  const std::chrono::duration<double> there = last.server - first.server;
  const std::chrono::duration<double> longest = last.received - first.sent;
  const std::chrono::duration<double> shortest = last.sent - first.received;
  if (shortest.count() <= 0) return 1;
  if (there > longest) return there / longest;
  if (there < shortest) return there / shortest;
  return 1;
}

/// In whole numbers. Without <cmath>, whose library every start of dlock would have to map.
std::string percent(double share) {
  return std::to_string(static_cast<std::int64_t>(share * 100 + 0.5));
}

}  // namespace

Finding judge_eviction(const ServerFacts& facts) {
  const std::string name = "eviction";
  const auto policy = setting(facts, "maxmemory-policy", "maxmemory_policy");
  const auto most = setting(facts, "maxmemory", "maxmemory");
  if (!policy || !most) return not_told(name, refusals(facts));
  const std::string shown = escaped(*policy);
  if (*most == "0") return good(name, "none: maxmemory 0 (policy " + shown + ")");
  if (*policy == "noeviction") return good(name, "none: noeviction");
  return bad(name, shown + ": a full server evicts held locks, and another client can acquire them",
             "CONFIG SET maxmemory-policy noeviction");
}

Finding judge_memory(const ServerFacts& facts) {
  const std::string name = "memory";
  const auto used = facts.info.number("used_memory");
  const auto most = facts.info.number("maxmemory");
  if (!used || !most) return not_told(name, refusals(facts));
  const std::string text = size_text(*used) + " used";
  if (*most == 0) return good(name, text + ", no limit set");
  const std::string of = text + " of " + size_text(*most);
  if (*used >= *most) return bad(name, of + ": full", "raise maxmemory, or make room");
  if (*used > *most / 10 * 9) {
    return warn(name, of + ": once it is full, no lock can be taken",
                "raise maxmemory, or make room");
  }
  return good(name, of);
}

Finding judge_persistence(const ServerFacts& facts) {
  const std::string name = "persistence";
  const std::string advice = "CONFIG SET appendonly yes, and in its redis.conf";
  if (facts.info.text("aof_last_write_status").value_or("ok") != "ok") {
    return bad(name, "writing to disk fails", "fix its disk: see its log");
  }
  switch (keeping_of(facts)) {
    case Keeping::unknown:
      return not_told(name, refusals(facts));
    case Keeping::nothing:
      return warn(name,
                  "none: a restart forgets held locks, so two may run at once; fences then "
                  "depend only on its clock",
                  advice);
    case Keeping::snapshots:
      return warn(name,
                  "snapshots at most: a crash forgets the locks since the last one; fences then "
                  "depend only on its clock",
                  advice);
    case Keeping::most:
      if (facts.config.text("appendfsync") == "always") {
        return warn(name,
                    "no-appendfsync-on-rewrite yes: while its log is rewritten, a power cut "
                    "forgets the newest locks",
                    "CONFIG SET no-appendfsync-on-rewrite no");
      }
      return warn(name, "appendonly, appendfsync no: a power cut forgets half a minute of locks",
                  "CONFIG SET appendfsync everysec, or always");
    case Keeping::last_second: {
      const auto fsync = facts.config.text("appendfsync");
      const std::string how = fsync ? "appendfsync " + escaped(*fsync)
                                    : "appendfsync not told (" + refusals(facts) + ")";
      return good(name, "appendonly, " + how + ": a power cut may forget the last second's locks");
    }
    case Keeping::all:
      break;
  }
  return good(name, "appendonly, appendfsync always: locks and fences outlive a crash");
}

Finding judge_replication(const ServerFacts& facts, const DoctorOptions& exam) {
  const std::string name = "replication";
  constexpr long long usual_lag = 10;
  if (!facts.info.number("connected_slaves")) return not_told(name, refusals(facts));
  const auto most_lag = facts.config.number("min-replicas-max-lag").value_or(usual_lag);
  const auto least = facts.config.number("min-replicas-to-write");
  const Replicas replicas = replicas_of(facts, most_lag > 0 ? most_lag : usual_lag);
  const std::string there = counted(replicas.connected, "replica");
  if (exam.replicas > replicas.in_step) {
    return bad(name,
               "--replicas " + std::to_string(exam.replicas) + ", but " +
                   counted(replicas.in_step, "replica") + " in step: no lock can be taken",
               "connect more replicas, or a smaller --replicas");
  }
  if (least.value_or(0) > replicas.in_step) {
    return bad(name,
               "min-replicas-to-write " + std::to_string(*least) + ", but " +
                   counted(replicas.in_step, "replica") + " in step: no lock can be taken",
               "bring its replicas back");
  }
  if (replicas.in_step < replicas.connected) {
    return warn(name,
                counted(replicas.connected - replicas.in_step, "replica") + " of " +
                    std::to_string(replicas.connected) + " not in step: a failover to one " +
                    "forgets locks",
                "see INFO replication, there and here");
  }
  if (exam.topology == Topology::cluster && replicas.connected == 0) {
    return warn(name, "no replica: if this master fails, its locks are lost",
                "give every master a replica");
  }
  if (exam.topology == Topology::sentinel && replicas.connected == 0) {
    return warn(name, "no replica: there is nothing to fail over to", "connect a replica");
  }
  if (exam.topology == Topology::sentinel && least == 0) {
    return warn(name,
                there +
                    ", min-replicas-to-write 0: a master cut off from them goes on granting "
                    "locks that the next one does not know",
                "CONFIG SET min-replicas-to-write 1, on each of them");
  }
  if (replicas.connected == 0) return good(name, "no replicas");
  return good(
      name, there + ", at most " + std::to_string(replicas.lag) + " s behind" +
                (least.value_or(0) > 0 ? ", min-replicas-to-write " + std::to_string(*least) : ""));
}

Finding judge_uptime(const ServerFacts& facts, const DoctorOptions& exam) {
  const std::string name = "uptime";
  const auto seconds = facts.info.number("uptime_in_seconds");
  if (!seconds) return not_told(name, refusals(facts));
  // A server that counts centuries is none; what is shown must not overflow.
  const std::chrono::seconds up(std::min<long long>(*seconds, 100'000'000'000));
  const std::string text = "started " + human_duration(up) + " ago";
  if (up >= exam.ttl || keeping_of(facts) == Keeping::all) return good(name, text);
  const auto left = std::chrono::ceil<std::chrono::seconds>(exam.ttl - up);
  return warn(name,
              text + ", less than the ttl of " + human_duration(exam.ttl) +
                  ": an earlier holder may still run",
              "trust new locks in " + human_duration(left));
}

Finding judge_restart(const ServerFacts& facts) {
  const bool remembers = keeping_of(facts) == Keeping::all;
  return good("restart", remembers ? "appendonly, appendfsync always: votes again at once"
                                   : "has no vote for two minutes afterwards");
}

Finding judge_vote(const ServerFacts& facts) {
  const std::string name = "vote";
  if (!facts.quarantined_for) return not_told(name, "the lock that was tried");
  if (*facts.quarantined_for == milliseconds(0)) return good(name, "has one");
  return warn(
      name,
      "none for another " + human_duration(*facts.quarantined_for) +
          ": restarted or flushed, or it has evicted keys: it may have forgotten a lease",
      "wait; appendonly yes and appendfsync always keep the vote over a restart, if dlock's user "
      "may CONFIG GET");
}

Finding judge_clock(const std::vector<ClockSample>& clock) {
  const std::string name = "clock";
  constexpr double tolerance = 0.01;
  constexpr std::chrono::seconds tolerable{1};
  if (clock.size() < 2) return not_told(name, "TIME");
  const double pace = pace_of(clock);
  if (pace > 1 + tolerance) {
    return bad(name, "runs " + percent(pace - 1) + " % fast: leases end before their holders know",
               "fix the clock of the server's host; never step it");
  }
  if (pace < 1 - tolerance) {
    return warn(name,
                pace <= 0
                    ? "stands still or is stepped back: locks of dead holders stay"
                    : "runs " + percent(1 - pace) + " % slow: locks of dead holders stay longer",
                "fix the clock of the server's host; never step it");
  }
  const auto nearest =
      std::min_element(clock.begin(), clock.end(), [](const ClockSample& a, const ClockSample& b) {
        return a.received - a.sent < b.received - b.sent;
      });
  const auto unsure = (nearest->received - nearest->sent) / 2;
  const auto ahead = nearest->server - (nearest->here + unsure);
  const auto off = ahead < ahead.zero() ? -ahead : ahead;
  if (off - unsure > tolerable) {
    return warn(name,
                span_text(off) + (ahead > ahead.zero() ? " ahead of" : " behind") +
                    " this host: times shown are off, and fences after a failover",
                "NTP on both hosts");
  }
  return good(name, "within " + span_text(off + unsure) + " of this host's, at the same pace");
}

Finding judge_label(const ServerFacts& facts, const DoctorOptions& exam) {
  const std::string name = "label";
  const std::string label = "best effort: ";
  const auto replicas = facts.info.number("connected_slaves").value_or(0);
  if (exam.topology != Topology::single || replicas > 0) {
    return good(name, label + "replication is asynchronous, so a failover may forget the newest " +
                          "locks" + (exam.replicas > 0 ? ", rarely with --replicas" : ""));
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
  return good(name, label + why);
}

}  // namespace dlock
