#include <string_view>
#include <vector>

#include "config/option_table.hpp"

namespace dlock {
namespace {

constexpr std::size_t columns = 80;
constexpr std::size_t help_column = 30;

/// The parts of a command's help that do not come from the table of options.
struct Page {
  Command command;
  const char* usage;
  const char* about;
  const char* examples;
  const char* exit_codes;
};

constexpr Page pages[] = {
    {Command::run, "run -k KEY [-k KEY2 ...] [OPTIONS] [--] COMMAND [ARG ...]",
     "Hold the lock while COMMAND runs; if the lock is lost, stop COMMAND and exit 79.\n",
     "  dlock run -k nightly -- tar czf /tmp/doc.tgz /usr/share/doc\n"
     "  dlock run -k cron -n --min-hold 50s -c 'date >> /tmp/log'\n"
     "  dlock run -k db -w 5m --server redis://localhost -- sleep 1\n",
     "  COMMAND's own; killed by signal N: 128+N; 75 not acquired; 79 lost; 64 usage;\n"
     "  124 --max-hold; 126, 127 not run; 69, 77 server; 78 file; 65, 70, 71 others\n"},
    {Command::acquire, "acquire -k KEY (-t TTL | --until TIME | --attach PID) [OPTIONS]",
     "Acquire the lock and exit. The token it prints renews and releases the lock.\n"
     "--attach leaves a background process that renews the lock until PID exits,\n"
     "usually \"$$\", the calling script. If the lock is lost, PID gets SIGTERM.\n",
     "  T=$(dlock acquire -k deploy -t 10m) || exit\n"
     "  dlock release -k deploy --token \"$T\"\n"
     "  dlock acquire -k deploy -t 1m -w 5m --env >>\"$GITHUB_ENV\"\n"
     "  T=$(dlock acquire -k deploy --attach \"$$\") || exit\n",
     "  0 acquired; 75 not acquired; 79 --attach: lost at once; 64 usage; 69 server\n"
     "  not reached; 77 refused by it; 78 configuration; 65, 70, 71 others\n"},
    {Command::renew, "renew [-k KEY] [--token T] [-t TTL] [--json]",
     "Extend the lease of an acquired lock: its own ttl from now on, or TTL. Without\n"
     "KEY it renews all keys of the token.\n",
     "  T=$(dlock acquire -k upload -t 10m)\n"
     "  dlock renew -k upload --token \"$T\"\n"
     "  DLOCK_TOKEN=$T dlock renew upload -t 1h\n",
     "  0 renewed; 79 the token does not hold it; 64 usage; 69 server not reached;\n"
     "  77 refused by it; 78 configuration; 65, 70, 71 others\n"},
    {Command::release,
     "release [-k KEY] [--token T] [--json]\n"
     "       dlock release --stop [-w DUR] | --force [--fence N] KEY | PATTERN ...",
     "Release an acquired lock; without KEY, all keys of the token. --stop asks the\n"
     "holders to stop: their commands get SIGTERM, and they hold the lock until these\n"
     "have ended. --force evicts them. Both act on all keys that match a PATTERN (with\n"
     "*, ? or [). A holder hears it at its next renewal (ttl/3); after --force another\n"
     "may run beside it until then.\n",
     "  T=$(dlock acquire -k deploy -t 10m)\n"
     "  dlock release --token \"$T\"\n"
     "  dlock release --stop deploy -w 5m --reason 'wrong branch'\n"
     "  dlock release deploy --force\n",
     "  0 released, stopped, evicted, or nobody to stop or evict; 75 --stop: a holder\n"
     "  cannot be asked, or runs on after -w; 79 the token, or the holder with that\n"
     "  fence, does not hold it; 64 usage; 69 server not reached; 77 refused by it;\n"
     "  78 configuration; 65, 70, 71 others\n"},
    {Command::inspect, "inspect [KEY|PATTERN ...] [--json|--metrics] [--free] [--watch|-q]",
     "Show holders, waiters and latches of each KEY, and of all keys that match a\n"
     "PATTERN (with *, ? or [). Without operands it shows all keys of the server.\n"
     "A key after -k is never read as a PATTERN. Of a free key it shows for seven days\n"
     "the last holder, and how that ended.\n",
     "  dlock inspect\n"
     "  dlock inspect nightly 'build-*' --json\n"
     "  dlock inspect --free 'build-*'\n"
     "  dlock inspect --watch\n"
     "  if dlock inspect -q nightly; then echo still running; fi\n",
     "  0 done; with -q: 0 held, 1 free; 64 usage; 69 server not reached; 77 refused\n"
     "  by it; 78 configuration; 65 the key is no lock; 70 a bug; 71 this host refused\n"},
    {Command::latch,
     "latch open   -k KEY --count N [--ttl DUR]\n"
     "       dlock latch arrive -k KEY [--by ID]\n"
     "       dlock latch wait   -k KEY [-n | -w DUR]",
     "Wait until N have arrived: open creates the latch, each arrive counts once, and\n"
     "wait returns when all have arrived. The latch is deleted when its ttl expires\n"
     "(100ms to 365d). A second open with the same N only extends the ttl. A latch\n"
     "and a lock of the same KEY are independent.\n",
     "  dlock latch open -k build-42 --count 4 --ttl 2h\n"
     "  dlock latch arrive -k build-42 --by linux\n"
     "  dlock latch wait -k build-42 -w 30m && echo all four are done\n",
     "  0 done; 75 not open in time; 79 there is no such latch, or no more; 65 it has\n"
     "  another count, or the key is no latch; 64 usage; 69 server not reached;\n"
     "  77 refused by it; 78 configuration; 70 a bug; 71 this host refused\n"},
    {Command::doctor, "doctor [--json | --acl | --schema] [-t TTL] [--replicas N]",
     "Connect as a lock would, try one, and report whether the server is fit to hold\n"
     "locks: one line for each check, with ok, warning or error, and the fix after ->.\n"
     "--acl prints the rights that dlock's user needs, without asking the server;\n"
     "--schema creates the table in a database, if its users may not.\n",
     "  dlock doctor --server redis://localhost\n"
     "  dlock doctor --server redis://localhost -t 10s --replicas 1 --json\n"
     "  dlock doctor --server redis://localhost --acl\n"
     "  dlock doctor --server postgres://admin@db1/app --schema\n",
     "  0 fit; 1 there are warnings; 2 there are errors, the server not reached or\n"
     "  refusing us among them; 64 usage; 78 configuration; 70 a bug; 71 cannot write;\n"
     "  --schema: 0 the table is there; 65, 69, 77 as in run\n"},
    {Command::guard, "guard --state FILE | --state-key NAME [--fence N] COMMAND [ARG ...]",
     "Protect a resource: record the fencing token and run COMMAND, unless a larger\n"
     "token is recorded already. So a holder that was paused and lost the lock cannot\n"
     "write when it continues. The token is DLOCK_FENCE, which run gives its command,\n"
     "or --fence N. FILE is locked while COMMAND runs; with --state-key on a server\n"
     "commands are refused in order, but may overlap.\n",
     "  dlock run -k store -- dlock guard --state store.seal cp new store\n"
     "  dlock guard --state store.seal --fence 12 -- cp new store\n"
     "  dlock guard --state-key store --fence 12 -c 'cp new store'\n",
     "  COMMAND's own; killed by signal N: 128+N; 79 older fence: not run;\n"
     "  126, 127 COMMAND not executable, not found; 64 usage, or no fence; 65 FILE or\n"
     "  NAME holds no fence; 71 FILE cannot be used; 69, 77, 78, 70 as in run\n"},
};

std::string padded(std::string text, std::size_t width) {
  // At least two blanks separate the columns.
  text.append(text.size() + 2 > width ? 2 : width - text.size(), ' ');
  return text;
}

std::string option_line(const Option& option, Command command) {
  std::string left = "  ";
  left += option.letter == 0 ? "    " : std::string("-") + option.letter;
  if (*option.name != '\0') left += (option.letter == 0 ? "--" : ", --") + std::string(option.name);
  if (option.takes_value()) left += std::string(" ") + option.value.name;
  std::string line = padded(left, help_column) + option.help_for(command);
  if (*option.alias != '\0') line.append("; also ").append(option.alias);
  return line + "\n";
}

/// Puts `words` after `label` and breaks lines before the right edge.
std::string wrapped(const std::string& label, const std::vector<std::string>& words) {
  std::string text = label;
  std::size_t used = text.size();
  for (const std::string& word : words) {
    if (used + 1 + word.size() > columns) {
      text += "\n ";
      used = 1;
    }
    text += " " + word;
    used += 1 + word.size();
  }
  return text + "\n";
}

std::vector<std::string> variables_of(Command command) {
  std::vector<std::string> names;
  for (const Option& each : options()) {
    const bool setting = each.commands == 0 || each.belongs_to(command);
    const bool is_read = setting && each.has_other_places(command);
    if (each.variable != nullptr && is_read && !each.has(rare)) {
      names.emplace_back(each.variable);
    }
  }
  names.emplace_back("REDISCLI_AUTH");
  if (option("owner").belongs_to(command)) names.emplace_back("DLOCK_OWNER");
  return names;
}

/// The options that have no line of their own.
std::vector<std::string> rare_options(Command command) {
  std::vector<std::string> words;
  for (const Option& each : options()) {
    if (!each.belongs_to(command) || !each.has(rare)) continue;
    words.push_back(each.shown() + " " + each.value.name);
  }
  return words;
}

std::string page_text(const Page& page) {
  std::string lines;
  for (const Option& each : options()) {
    if (!each.belongs_to(page.command) || each.has(rare)) continue;
    lines += option_line(each, page.command);
  }
  const bool has_durations = lines.find(" DUR ") != std::string::npos;
  std::string text = std::string("Usage: dlock ") + page.usage + "\n" + page.about + "\nOptions";
  text += has_durations ? " (DUR is 10, 0.25 or .5 seconds, 500ms, 30s, 5m, 1h30m, 1d):\n" : ":\n";
  text += lines;
  text += wrapped("Also, with variables:", rare_options(page.command));
  text += wrapped("Variables:", variables_of(page.command));
  text += std::string("\nExamples:\n") + page.examples;
  return text + "\nExit codes:\n" + page.exit_codes;
}

std::string overview() {
  std::string text =
      "Usage: dlock COMMAND [OPTIONS]\n"
      "Run commands under a lock, on this host or on many.\n\n"
      "Commands:\n";
  for (const Subcommand& each : subcommands()) {
    text += padded(std::string("  ") + each.name, 12) + each.help + "\n";
  }
  text += padded("  help", 12) + std::string("print the help of COMMAND: dlock help COMMAND\n");
  return text +
         "\nExamples:\n"
         "  dlock run -n -k nightly -- ./backup.sh      # skip if it runs\n"
         "  dlock run -w 60 -k nightly -- ./backup.sh   # wait at most 60 s\n"
         "  dlock run -n -k tick --min-hold 50s --server redis://localhost -- echo once\n"
         "  dlock inspect\n"
         "\n"
         "dlock COMMAND --help has the options, variables, examples and exit codes.\n"
         "dlock --version prints the version. Settings: ~/.config/dlock.conf over\n"
         "/etc/dlock.conf. Flags override variables, variables override files.\n"
         "With no server configured, dlock locks only this user's jobs on this host.\n";
}

}  // namespace

std::string help_text(std::optional<Command> command) {
  for (const Page& page : pages) {
    if (command == page.command) return page_text(page);
  }
  return overview();
}

std::string version_text(std::string_view commit) {
  const std::string inside = DLOCK_LIBRARIES_INSIDE, loaded = DLOCK_LIBRARIES_LOADED;
  std::string text = "dlock " DLOCK_VERSION "\n";
  if (!commit.empty()) text += "commit: " + std::string(commit) + "\n";
  text += "libraries inside: " + inside + "\n";
  if (!loaded.empty()) text += "libraries loaded when needed: " + loaded + "\n";
  return text;
}

}  // namespace dlock
