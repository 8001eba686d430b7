#include <algorithm>

#include "base/text.hpp"
#include "doctor/judge_database.hpp"
#include "doctor/words.hpp"

namespace dlock {
namespace {

constexpr const char* use_fences = "and fencing tokens: dlock guard";

bool is_set(const DatabaseFacts& facts, const char* name) {
  const auto value = facts.settings.text(name);
  return value && !value->empty() && *value != "off" && *value != "OFF" && *value != "0";
}

std::string shown(const DatabaseFacts& facts, const char* name) {
  return escaped(facts.settings.text(name).value_or(""));
}

Finding judge_log_of_postgres(const DatabaseFacts& facts) {
  const std::string name = "persistence";
  if (!facts.settings.text("fsync")) return not_told(name, "fsync");
  if (facts.settings.text("table") == "u") {
    return warn(name, "the table dlock is UNLOGGED: a crash empties it, and held locks are free",
                "ALTER TABLE dlock SET LOGGED");
  }
  if (!is_set(facts, "fsync")) {
    return warn(name, "fsync off: a crash of its host damages the database or forgets locks",
                "fsync = on");
  }
  if (!is_set(facts, "full_page_writes")) {
    return warn(name,
                "full_page_writes off: a crash of its host may damage the database, and with it "
                "locks",
                "full_page_writes = on, unless the file system writes whole pages");
  }
  const std::string commit = shown(facts, "synchronous_commit");
  return good(name, "fsync on, full_page_writes on, and dlock commits with synchronous_commit on" +
                        (commit == "on" ? "" : " (the default there: " + commit + ")"));
}

Finding judge_log_of_mysql(const DatabaseFacts& facts) {
  const std::string name = "persistence";
  const std::string flush = shown(facts, "innodb_flush_log_at_trx_commit");
  const auto engine = facts.settings.text("table");
  if (engine && *engine != "InnoDB") {
    return bad(name,
               "the table dlock is of the engine " + escaped(*engine) +
                   ": a crash may forget or damage it",
               "ALTER TABLE dlock ENGINE=InnoDB");
  }
  if (flush.empty()) return not_told(name, "innodb_flush_log_at_trx_commit");
  if (flush != "1") {
    return warn(name,
                "innodb_flush_log_at_trx_commit " + flush + ": a crash of " +
                    (flush == "2" ? "its host" : "the server") +
                    " may forget the last second's locks",
                "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in its my.cnf");
  }
  if (shown(facts, "innodb_flush_method") == "nosync") {
    return warn(name, "innodb_flush_method nosync: a crash of its host forgets locks",
                "another innodb_flush_method in its my.cnf");
  }
  const std::string doublewrite = shown(facts, "innodb_doublewrite");
  // DETECT_ONLY finds a torn page, and cannot restore it.
  if (!doublewrite.empty() &&
      (!is_set(facts, "innodb_doublewrite") || doublewrite == "DETECT_ONLY")) {
    return warn(name,
                "innodb_doublewrite " + doublewrite + ": a crash of its host may damage the table",
                "innodb_doublewrite = ON in its my.cnf");
  }
  if (is_set(facts, "log_bin") && shown(facts, "sync_binlog") != "1") {
    return warn(name,
                "sync_binlog " + shown(facts, "sync_binlog") +
                    ": after a crash of its host its replicas may lack locks, or have more",
                "SET GLOBAL sync_binlog = 1, and in its my.cnf");
  }
  return good(name, "innodb_flush_log_at_trx_commit 1: locks outlive a crash" +
                        std::string(is_set(facts, "log_bin") ? ", sync_binlog 1" : ""));
}

Finding judge_standbys_of_postgres(const DatabaseFacts& facts) {
  const std::string name = "replication";
  const auto standbys = facts.settings.number("standbys");
  const auto synchronous = facts.settings.number("synchronous_standbys");
  if (!standbys) return not_told(name, "pg_stat_replication");
  const std::string there = counted(*standbys, "standby connection");
  if (is_set(facts, "synchronous_standby_names")) {
    if (!synchronous) {
      return good(
          name, there + ", synchronous_standby_names " + shown(facts, "synchronous_standby_names"));
    }
    if (*synchronous == 0) {
      return bad(name,
                 "synchronous_standby_names is set, but no such standby is connected: commits "
                 "wait, and no lock can be taken",
                 "bring the standby back, or change synchronous_standby_names");
    }
    return good(name, there + ", " + std::to_string(*synchronous) +
                          " synchronous: a failover to one keeps all locks");
  }
  if (*standbys == 0) return good(name, "no standby connected");
  return warn(name,
              there +
                  ", asynchronous: a failover may lose the last commits, and then two run until "
                  "the first holder's next renewal",
              "synchronous_standby_names, " + std::string(use_fences));
}

bool in_group(const DatabaseFacts& facts) { return is_set(facts, "group_replication_group_name"); }

bool has_several_primaries(const DatabaseFacts& facts) {
  return is_set(facts, "wsrep_on") ||
         (in_group(facts) && !is_set(facts, "group_replication_single_primary_mode"));
}

/// Semi-synchronous replication as it is set, and as it works: it falls back to asynchronous where
/// no replica confirms in time.
enum class SemiSync { off, fallen_back, on };

SemiSync semi_sync(const DatabaseFacts& facts) {
  // By the older name of the primary and by the newer one.
  constexpr const char* names[][2] = {
      {"rpl_semi_sync_master_enabled", "Rpl_semi_sync_master_status"},
      {"rpl_semi_sync_source_enabled", "Rpl_semi_sync_source_status"}};
  SemiSync found = SemiSync::off;
  for (const auto& [enabled, status] : names) {
    if (!is_set(facts, enabled)) continue;
    const bool works = !facts.settings.text(status) || is_set(facts, status);
    found = std::max(found, works ? SemiSync::on : SemiSync::fallen_back);
  }
  return found;
}

Finding judge_replicas_of_mysql(const DatabaseFacts& facts) {
  const std::string name = "replication";
  if (has_several_primaries(facts)) {
    return warn(
        name,
        (is_set(facts, "wsrep_on")
             ? "Galera, " + counted(facts.settings.number("wsrep_cluster_size").value_or(1), "node")
             : std::string("Group Replication with several primaries")) +
            ": each node times leases by its own clock",
        "let all clients name one node in --server");
  }
  if (semi_sync(facts) == SemiSync::fallen_back) {
    return warn(name,
                "semi-synchronous, but fallen back to asynchronous, as no replica confirms in "
                "time: a failover may lose the last commits, and then two run until the first "
                "holder's next renewal",
                "see that a semi-synchronous replica is connected and keeps up, " +
                    std::string(use_fences));
  }
  if (semi_sync(facts) == SemiSync::on) {
    return good(name,
                "semi-synchronous: a failover keeps locks, unless the replicas were late before");
  }
  const auto replicas = facts.settings.number("Slaves_connected");
  if (!replicas && !in_group(facts)) return not_told(name, "Slaves_connected");
  if (replicas && *replicas == 0) return good(name, "no replica connected");
  return warn(name,
              (replicas ? counted(*replicas, "replica") : std::string("Group Replication")) +
                  ", asynchronous: a failover may lose the last commits, and then two run until "
                  "the first holder's next renewal",
              "semi-synchronous replication, " + std::string(use_fences));
}

}  // namespace

Finding judge_durability(const DatabaseFacts& facts) {
  return facts.kind == DatabaseKind::postgres ? judge_log_of_postgres(facts)
                                              : judge_log_of_mysql(facts);
}

Finding judge_standbys(const DatabaseFacts& facts) {
  return facts.kind == DatabaseKind::postgres ? judge_standbys_of_postgres(facts)
                                              : judge_replicas_of_mysql(facts);
}

std::string database_label(const DatabaseFacts& facts) {
  const Finding durability = judge_durability(facts);
  if (!durability.told) return "best effort: whether it keeps what it commits is not known";
  if (durability.level != Level::ok) return "best effort: a crash may forget the newest locks";
  if (has_several_primaries(facts)) {
    return "best effort: several nodes that can be written";
  }
  if (facts.settings.number("synchronous_standbys").value_or(0) > 0) {
    return "safe through restarts, and through failovers to a synchronous standby";
  }
  return "safe through restarts, best effort through failovers";
}

}  // namespace dlock
