#include "config/help.hpp"

#include "config/options.hpp"

namespace dlock {
namespace {

constexpr std::size_t columns = 80;
constexpr std::size_t help_column = 30;

/// What the table does not say about a command.
struct Page {
  Command command;
  const char* usage;
  const char* about;
  const char* examples;
  const char* exit_codes;
};

constexpr Page pages[] = {
    {Command::run, "run -k KEY [-k KEY2 ...] [OPTIONS] [--] COMMAND [ARG ...]",
     "Hold the lock while COMMAND runs; options of COMMAND are never read by dlock.\n"
     "Of several keys it takes all or none, in an order that cannot dead-lock.\n"
     "If the lock is lost, COMMAND is stopped before another can hold it.\n",
     "  dlock run -k nightly -w 5m -- tar czf /tmp/doc.tgz /usr/share/doc\n"
     "  dlock run -k cron -n --min-hold 50s --server redis://localhost -c 'sleep 1'\n",
     "  COMMAND's own; killed by signal N: 128+N; 75 not had in time; 79 lock lost;\n"
     "  124 --max-hold; 126, 127 COMMAND not executable, not found; 64 usage;\n"
     "  69 server not reached; 77 refused by it; 78 configuration; 65, 70, 71 others\n"},
    {Command::acquire, "acquire -k KEY (-t TTL | --attach PID) [OPTIONS]",
     "Take the lock and leave; prints the token that renews and releases it.\n"
     "--attach leaves a process in the background that keeps the lock for PID, mostly\n"
     "\"$$\", the calling script: if the lock is lost, PID gets SIGTERM, or --signal.\n",
     "  T=$(dlock acquire -k deploy -t 10m) || exit\n"
     "  dlock release -k deploy --token \"$T\"\n"
     "  dlock acquire -k deploy -t 1m -w 5m --env >>\"$GITHUB_ENV\"\n"
     "  T=$(dlock acquire -k deploy --attach \"$$\") || exit\n",
     "  0 taken; 75 not had in time; 79 --attach: lost at once; 64 usage; 69 server\n"
     "  not reached; 77 refused by it; 78 configuration; 65, 70, 71 others\n"},
    {Command::renew, "renew -k KEY [--token T] [-t TTL] [--json]",
     "Give a lock taken with acquire more time: its own ttl from now on, or TTL.\n",
     "  T=$(dlock acquire -k upload -t 10m)\n"
     "  dlock renew -k upload --token \"$T\"\n"
     "  DLOCK_TOKEN=$T dlock renew upload -t 1h\n",
     "  0 renewed; 79 the token holds it no longer; 64 usage; 69 server not reached;\n"
     "  77 refused by it; 78 configuration; 65, 70, 71 others\n"},
    {Command::release,
     "release -k KEY [--token T] [--json]\n"
     "       dlock release --force [--fence N] [--json] KEY | PATTERN ...",
     "Give back a lock taken with acquire. --force throws its holders out, or the one\n"
     "with fence N, or those of all keys that match a PATTERN (with *, ? or [); they\n"
     "notice at their next renewal (ttl/3), and until then both may run.\n",
     "  T=$(dlock acquire -k deploy -t 10m)\n"
     "  dlock release -k deploy --token \"$T\"\n"
     "  dlock release deploy --force\n",
     "  0 released, or --force and nobody there; 79 the token, or the holder with\n"
     "  that fence, holds it no longer; 64 usage; 69 server not reached; 77 refused\n"
     "  by it; 78 configuration; 65, 70, 71 others\n"},
    {Command::inspect, "inspect [KEY | PATTERN ...] [--json] [--watch] [-q]",
     "Who holds, who waits and how many arrived at a latch, for each KEY and all that\n"
     "match a PATTERN (with *, ? or [); without either, all that is on the server.\n"
     "After -k no PATTERN is read.\n",
     "  dlock inspect\n"
     "  dlock inspect nightly 'build-*' --json\n"
     "  dlock inspect --watch\n"
     "  if dlock inspect -q nightly; then echo still running; fi\n",
     "  0 done; with -q: 0 held, 1 free; 64 usage; 69 server not reached; 77 refused\n"
     "  by it; 78 configuration; 65 the key is no lock; 70 a bug; 71 this host refused\n"},
    {Command::latch,
     "latch open   -k KEY --count N [--ttl DUR]\n"
     "       dlock latch arrive -k KEY [--by ID]\n"
     "       dlock latch wait   -k KEY [-n | -w DUR]",
     "Wait until N have arrived: open makes the latch, each arrive counts once, and\n"
     "wait ends when all are there; who waits later passes at once. When its ttl ends\n"
     "(100ms to 365d) the latch is gone. To open it again with the same N changes\n"
     "nothing, but may put the end off. A lock of the same KEY is another thing.\n",
     "  dlock latch open -k build-42 --count 4 --ttl 2h\n"
     "  dlock latch arrive -k build-42 --by linux\n"
     "  dlock latch wait -k build-42 -w 30m && echo all four are done\n",
     "  0 done; 75 not open in time; 79 there is no such latch, or no more; 65 it has\n"
     "  another count, or the key is no latch; 64 usage; 69 server not reached;\n"
     "  77 refused by it; 78 configuration; 70 a bug; 71 this host refused\n"},
    {Command::doctor, "doctor [--json | --acl] [-t TTL] [--replicas N]",
     "Reach the server as a lock would, try one, and say whether it is fit to hold\n"
     "locks: one line a check, with ok, warning or error, and what to do behind ->.\n"
     "--acl prints what dlock's user must be allowed, and needs no server.\n",
     "  dlock doctor --server redis://localhost\n"
     "  dlock doctor --server redis://localhost -t 10s --replicas 1 --json\n"
     "  dlock doctor --server redis://localhost --acl\n",
     "  0 fit; 1 there are warnings; 2 there are errors, the server not reached or\n"
     "  refusing us among them; 64 usage; 78 configuration; 70 a bug; 71 cannot write\n"},
    {Command::guard, "guard --state FILE | --state-key NAME [--fence N] COMMAND [ARG ...]",
     "For the resource that a lock protects: run COMMAND if its fence is not older\n"
     "than one that came before, and record it first. So a holder that was stopped,\n"
     "lost the lock and comes back is refused. The fence is DLOCK_FENCE, which run\n"
     "gives its command, or --fence N.\n"
     "FILE is locked while COMMAND runs: one after the other. With --state-key on a\n"
     "server they are refused in order, but not kept apart.\n",
     "  dlock run -k store -- dlock guard --state store.seal cp new store\n"
     "  dlock guard --state store.seal --fence 12 -- cp new store\n"
     "  dlock guard --state-key store --fence 12 -c 'cp new store'\n",
     "  COMMAND's own; killed by signal N: 128+N; 79 the fence is older: not run;\n"
     "  126, 127 COMMAND not executable, not found; 64 usage, or no fence; 65 FILE or\n"
     "  NAME holds no fence; 71 FILE cannot be used; 69, 77, 78, 70 as in run\n"},
};

/// What one command means by an option that others have, too, and that means something else there.
struct Wording {
  Command command;
  std::string_view option;
  const char* help;
};

constexpr Wording wordings[] = {
    {Command::acquire, "--ttl", "lease: ends so much later unless renewed"},
    {Command::renew, "--ttl", "new lease, from now on (default: as acquired)"},
    {Command::latch, "--ttl", "open: how long the latch lasts (default: 1d)"},
    {Command::doctor, "--ttl", "the lease that the locks there will have"},
    {Command::acquire, "--signal", "at loss, in place of SIGTERM: INT, SIGINT or 2"},
    {Command::release, "--fence", "throw out only the holder with this fence"},
    {Command::acquire, "-q", "print nothing but errors"},
    {Command::inspect, "-q", "no output; the exit code says if it is held"},
    {Command::doctor, "-q", "no output; the exit code says it"},
};

std::string help_of(const Option& option, Command command) {
  for (const Wording& each : wordings) {
    if (each.command == command && each.option == option.shown()) return each.help;
  }
  return option.help;
}

std::string padded(std::string text, std::size_t width) {
  // A column of its own always ends in two blanks.
  text.append(text.size() + 2 > width ? 2 : width - text.size(), ' ');
  return text;
}

std::string option_line(const Option& option, Command command) {
  std::string left = "  ";
  left += option.letter == 0 ? "    " : std::string("-") + option.letter;
  if (*option.name != '\0') left += (option.letter == 0 ? "--" : ", --") + std::string(option.name);
  if (option.value != nullptr) left += " " + std::string(option.value);
  std::string line = padded(left, help_column) + help_of(option, command);
  for (const std::string& alias : aliases_of(option)) line += "; also " + alias;
  return line + "\n";
}

/// `words` behind `label`, broken before the right edge.
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
    const bool flag_alone = (each.flag_alone & only(command)) != 0;
    const bool rare = each.commands != 0 && *each.help == '\0';
    if (each.variable != nullptr && setting && !flag_alone && !rare) {
      names.emplace_back(each.variable);
    }
  }
  names.emplace_back("REDISCLI_AUTH");
  if (option("owner").belongs_to(command)) names.emplace_back("DLOCK_OWNER");
  return names;
}

/// Options that have no line of their own.
std::vector<std::string> rare_options(Command command) {
  std::vector<std::string> words;
  for (const Option& each : options()) {
    if (!each.belongs_to(command) || *each.help != '\0') continue;
    words.push_back(each.shown() + " " + each.value);
  }
  return words;
}

std::string page_text(const Page& page) {
  std::string text = std::string("Usage: dlock ") + page.usage + "\n" + page.about + "\nOptions:\n";
  for (const Option& each : options()) {
    if (!each.belongs_to(page.command) || *each.help == '\0') continue;
    text += option_line(each, page.command);
  }
  text += wrapped("Also, each with a variable as DLOCK_TLS_CA:", rare_options(page.command));
  text += wrapped("Variables:", variables_of(page.command));
  if (text.find(" DUR ") != std::string::npos) {
    text += "DUR is 10, 0.25 or .5 (seconds), 500ms, 30s, 5m, 1h30m, 1d.\n";
  }
  text += std::string("\nExamples:\n") + page.examples;
  return text + "\nExit codes:\n" + page.exit_codes;
}

std::string overview() {
  std::string text =
      "Usage: dlock COMMAND [OPTIONS]\n"
      "Locks between processes, on this host or through a Redis server.\n\n"
      "Commands:\n";
  for (const Subcommand& each : subcommands()) {
    text += padded(std::string("  ") + each.name, 12) + each.help + "\n";
  }
  text += padded("  help", 12) + std::string("print the help of COMMAND: dlock help COMMAND\n");
  return text +
         "\nExamples:\n"
         "  dlock run -n -k nightly -- echo skipped if it runs already\n"
         "  dlock run -w 60 -k nightly -- echo waits at most a minute\n"
         "  dlock run -n -k tick --min-hold 50s --server redis://localhost -- echo once\n"
         "  dlock inspect\n"
         "\n"
         "dlock COMMAND --help has the options, variables, examples and exit codes.\n"
         "dlock --version prints the version. Settings: ~/.config/dlock.conf over\n"
         "/etc/dlock.conf; variables go before files, flags before variables.\n"
         "Without a server configured, local: locks this user's jobs on this host.\n";
}

}  // namespace

std::string help_text(std::optional<Command> command) {
  for (const Page& page : pages) {
    if (command == page.command) return page_text(page);
  }
  return overview();
}

std::string version_text() { return "dlock " DLOCK_VERSION "\n"; }

}  // namespace dlock
