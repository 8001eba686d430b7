// Spring Integration's RedisLockRegistry, spinning and told by messages, and ShedLock on Spring's
// client. See tests/interop/README for the form of a driver.
import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;

public class Driver {
  /** The registry that scripts/interop names in dlock's layout. */
  private static final String REGISTRY = "jobs";

  private static class Spring extends Rival {
    /** A waiter for messages sleeps its whole wait behind a holder that died. */
    private static final long LONGEST_WAIT_MS = 1000;
    private final Lock lock;
    private final Lock other;

    Spring(LettuceConnectionFactory server, RedisLockType type, String key, long leaseMs) {
      RedisLockRegistry registry = new RedisLockRegistry(server, REGISTRY, leaseMs);
      registry.setRedisLockType(type);
      lock = registry.obtain(key);
      other = registry.obtain("warm-" + key);
    }

    @Override
    boolean acquire(long longestMs) throws Exception {
      Instant end = Instant.now().plusMillis(longestMs);
      do {
        if (lock.tryLock(Math.min(longestMs, LONGEST_WAIT_MS), TimeUnit.MILLISECONDS)) return true;
      } while (Instant.now().isBefore(end));
      return false;
    }

    @Override
    boolean release() {
      try {
        lock.unlock();
        return true;
      } catch (RuntimeException expired) {
        return false;
      }
    }

    @Override
    void warmUp() {
      other.lock();
      other.unlock();
    }
  }

  /** It never waits: its users' next run comes by the clock. */
  private static class Shed extends Rival {
    private static final long PAUSE_MS = 50;
    private final RedisLockProvider provider;
    private final String name;
    private final Duration lease;
    private SimpleLock lock;

    Shed(LettuceConnectionFactory server, String name, long leaseMs) {
      // Otherwise a late release deletes the lock of whoever has it now.
      provider = new RedisLockProvider.Builder(server).environment("default").safeUpdate(true).build();
      this.name = name;
      lease = Duration.ofMillis(leaseMs);
    }

    @Override
    boolean acquire(long longestMs) throws Exception {
      Instant end = Instant.now().plusMillis(longestMs);
      while (true) {
        var taken = provider.lock(new LockConfiguration(Instant.now(), name, lease, Duration.ZERO));
        if (taken.isPresent()) {
          lock = taken.get();
          return true;
        }
        if (!Instant.now().isBefore(end)) return false;
        Thread.sleep(PAUSE_MS);
      }
    }

    @Override
    boolean release() {
      lock.unlock();
      return true;
    }
  }

  public static void main(String[] words) throws Exception {
    String library = words[0];
    if (words[1].equals("version")) {
      Class<?> part = library.equals("shedlock") ? RedisLockProvider.class : RedisLockRegistry.class;
      String jar = part.getProtectionDomain().getCodeSource().getLocation().getPath();
      System.out.println(jar.replaceAll(".*-|[.]jar", ""));
      return;
    }
    URI url = URI.create(words[2]);
    var server = new LettuceConnectionFactory(url.getHost(), url.getPort());
    server.afterPropertiesSet();
    server.start();
    long leaseMs = Long.parseLong(words[4]);
    Rival rival = switch (library) {
      case "shedlock" -> new Shed(server, words[3], leaseMs);
      case "spring" -> new Spring(server, RedisLockType.SPIN_LOCK, words[3], leaseMs);
      default -> new Spring(server, RedisLockType.PUB_SUB_LOCK, words[3], leaseMs);
    };
    int code = rival.run(Arrays.copyOfRange(words, 1, words.length));
    System.exit(code);
  }
}
