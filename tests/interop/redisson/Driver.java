// Redisson's RLock and RFencedLock. See tests/interop/README for the form of a driver.
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Driver {
  static double seconds() {
    var now = java.time.Instant.now();
    return now.getEpochSecond() + now.getNano() / 1e9;
  }

  static boolean release(RLock lock) {
    try {
      lock.unlock();
      return true;
    } catch (IllegalMonitorStateException notOurs) {
      return false;
    }
  }

  static void section(Path inside) throws Exception {
    try {
      Files.createFile(inside);
    } catch (FileAlreadyExistsException taken) {
      System.out.println("overlap");
      return;
    }
    Thread.sleep(2);
    Files.delete(inside);
  }

  public static void main(String[] arguments) throws Exception {
    String library = arguments[0];
    String verb = arguments[1];
    if (verb.equals("version")) {
      System.out.println(Redisson.class.getPackage().getImplementationVersion());
      return;
    }
    Config config = new Config();
    config.useSingleServer().setAddress(arguments[2]).setConnectionMinimumIdleSize(2)
        .setConnectionPoolSize(4).setSubscriptionConnectionMinimumIdleSize(1);
    RedissonClient client = Redisson.create(config);
    long lease = Long.parseLong(arguments[4]);
    RLock lock = library.equals("redisson-fenced") ? client.getFencedLock(arguments[3])
                                                   : client.getLock(arguments[3]);
    int code = 0;
    if (verb.equals("try")) {
      boolean held = lock.tryLock(0, lease, TimeUnit.MILLISECONDS);
      if (held) release(lock);
      code = held ? 0 : 75;
    } else if (verb.equals("hold")) {
      // Classes are loaded before the time counts.
      RLock other = client.getLock("warm-" + arguments[3]);
      other.lock(1, TimeUnit.SECONDS);
      release(other);
      System.out.println("waits " + seconds());
      lock.lock(lease, TimeUnit.MILLISECONDS);
      System.out.println("held " + seconds());
      System.in.read();
      double before = seconds();
      System.out.println((release(lock) ? "released " : "lost ") + before);
    } else {
      int count = 0;
      for (double end = seconds() + Double.parseDouble(arguments[5]); seconds() < end;) {
        if (!lock.tryLock(5000, lease, TimeUnit.MILLISECONDS)) continue;
        section(Path.of(arguments[6]));
        release(lock);
        ++count;
        Thread.sleep(5);
      }
      System.out.println("sections " + count);
    }
    System.out.flush();
    client.shutdown(0, 2, TimeUnit.SECONDS);
    System.exit(code);
  }
}
