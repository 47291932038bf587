import { setTimeout as sleep } from 'node:timers/promises'
import { maxBatch } from '../../core/metering/ingest.ts'
import { wireCore } from './core.ts'
import { createFeed } from './feed.ts'
import { answerQuestions } from './helper.ts'
import { median } from './stats.ts'
import { createTopic } from './tickets.ts'

/**
 * The collector alone in a process, to see what it keeps. Arguments: database, client id, events
 * for one user.
 */
const [url = '', clientId = '', forOne = '0'] = process.argv.slice(2)
const step = 100_000

const core = wireCore(url)
const feed = createFeed()
const metering = core.createCollecting(feed.source)
await metering.start()
// One event in a thousand and one is the other user's.
const topic = createTopic({ clientId, pick: (n) => (n % 1001 === 0 ? 1 : 0) })

async function collect(total: number): Promise<Record<string, number>> {
  const figures: Record<string, number> = {}
  const started = performance.now()
  for (let done = 0; done < total;) {
    const count = Math.min(step, total - done)
    await feed.take(topic.batches(count, maxBatch), count)
    done += count
    figures[`rssAt${done}`] = await settledRss()
  }
  return { ...figures, seconds: (performance.now() - started) / 1000 }
}

/** Resident bytes when what is garbage is gone. */
async function settledRss(): Promise<number> {
  const samples: number[] = []
  for (let i = 0; i < 5; i++) {
    globalThis.gc?.()
    await sleep(20)
    samples.push(process.memoryUsage.rss())
  }
  return median(samples)
}

answerQuestions({}, async () => {
  const figures = await collect((Number(forOne) / 1000) * 1001)
  await metering.stop()
  await core.stop()
  return figures
})
