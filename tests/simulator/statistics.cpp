#include "simulator/statistics.hpp"

#include <string>

namespace dlock::sim {
namespace {

std::string line(const std::string& name, std::uint64_t number) {
  return "  " + std::string(name.size() < 34 ? 34 - name.size() : 1, ' ') + name + "  " +
         std::to_string(number) + "\n";
}

}  // namespace

std::string text_of(const Statistics& of) {
  return line("schedules", of.schedules) + line("happenings", of.happenings) +
         line("asked for the lock", of.asked) + line("had", of.grants) +
         line("of these in one exchange", of.grants_in_one_exchange) +
         line("had where clocks are alike", of.grants_by_like_clocks) +
         line("of these in one exchange", of.of_these_in_one_exchange) +
         line("had before one who asked later", of.in_turn) + line("not had in time", of.given_up) +
         line("no majority in reach", of.unavailable) + line("split votes given back", of.splits) +
         line("renewals", of.renewals) + line("stopped before the deadline", of.stopped_in_time) +
         line("lost", of.losses) + line("fences raised", of.raised) +
         line("holds taken down by re-joining", of.rejoined) + line("messages", of.messages) +
         line("of these dropped", of.dropped) + line("sent twice", of.duplicated) +
         line("overtaken by a later one", of.overtaken) + line("links broken", of.links_broken) +
         line("partitions", of.partitions) + line("members killed", of.member_crashes) +
         line("memories lost", of.memories_lost) + line("of these by a flush", of.flushes) +
         line("clients killed", of.client_crashes) +
         line("processes that stood still", of.freezes) +
         line("machines suspended", of.suspensions) + line("clocks set", of.clock_steps) +
         line("^C", of.interrupts);
}

}  // namespace dlock::sim
