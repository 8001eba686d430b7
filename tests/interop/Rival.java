import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;

/** A library's lock, and what a driver in Java does with it. */
abstract class Rival {
  /** True once it is taken; false where that took longer. */
  abstract boolean acquire(long longestMs) throws Exception;

  /** False where the library tells that it was no longer its own. */
  abstract boolean release();

  /** Loads the classes that acquire() needs, before the time counts. */
  void warmUp() throws Exception {}

  private static double seconds() {
    var now = java.time.Instant.now();
    return now.getEpochSecond() + now.getNano() / 1e9;
  }

  private static void section(Path inside) throws Exception {
    try {
      Files.createFile(inside);
    } catch (FileAlreadyExistsException taken) {
      System.out.println("overlap");
      return;
    }
    Thread.sleep(2);
    Files.delete(inside);
  }

  private boolean attempt() throws Exception {
    boolean held = acquire(0);
    if (held) release();
    return held;
  }

  private boolean hold() throws Exception {
    warmUp();
    System.out.println("waits " + seconds());
    if (!acquire(60_000)) return false;
    System.out.println("held " + seconds());
    System.in.read();
    double before = seconds();
    System.out.println((release() ? "released " : "lost ") + before);
    return true;
  }

  private boolean stress(double span, Path inside) throws Exception {
    int count = 0;
    for (double end = seconds() + span; seconds() < end;) {
      if (!acquire(5000)) continue;
      section(inside);
      release();
      ++count;
      Thread.sleep(5);
    }
    System.out.println("sections " + count);
    return true;
  }

  /** `words` begin with the verb, as README of this folder has them; the exit code. */
  int run(String... words) throws Exception {
    boolean done = switch (words[0]) {
      case "try" -> attempt();
      case "hold" -> hold();
      default -> stress(Double.parseDouble(words[4]), Path.of(words[5]));
    };
    System.out.flush();
    return done ? 0 : 75;
  }
}
