import { setFlagsFromString } from 'node:v8'

/**
 * Keeps the objects of requests among the young ones. While the cache fills, many requests wait for
 * core at once, and V8 learns from what survives then to put such objects among the old ones: from
 * there each holds all that it refers to until the next full collection, which in some processes
 * took as long as the decisions themselves. To be called before the first request.
 */
export const keepRequestsYoung = (): void => setFlagsFromString('--no-allocation-site-pretenuring')
