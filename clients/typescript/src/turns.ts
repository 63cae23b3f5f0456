// Which group the next claim is from.
import type { Queue } from './job.js'

const groupsAtOnce = 16 // how many groups one search asks for, and so the most claims between two

/**
 * Turns says which group the next claim is from. With several groups it is a deficit round robin over those that have jobs: in each round a group
 * gets as many as its weight says, in one claim or in several.
 */
export class Turns {
  readonly groups: readonly string[] // [] is all
  last: string // the group that has its turn
  looked = 0 // how many milliseconds the last search took
  #ready: [group: string, left: number][] = [] // those that have not had their turn, and how many jobs each may still get
  #unit = 1 // jobs for a weight of 1 in this round: 1, or more if all weigh the same
  #brought = false // whether there were jobs since the last search
  #more = false // whether there may be others

  constructor({ groupKey = '', groups, allGroups }: { groupKey?: string, groups?: readonly string[], allGroups?: boolean }) {
    this.groups = allGroups ? [] : groups?.length ? [...new Set(groups)].sort() : [groupKey]
    this.last = this.groups.length === 1 ? this.groups[0]! : ''
  }

  /** Chooses the group, and returns how many of n jobs to claim from it: 0 if no group has jobs. */
  async next(queue: Queue, n: number): Promise<number> {
    if (this.groups.length === 1) return n
    if (!this.#ready.length) {
      const start = performance.now()
      const found = await queue.readyGroups(this.groups.length ? this.groups : undefined, this.last, groupsAtOnce)
      const weights = new Map<string, number>()
      for (const group of found) weights.set(group, (weights.get(group) ?? 0) + 1)
      this.#unit = weights.size && weights.size === found.length ? Math.ceil(n / weights.size) : 1 // small rounds: jobs claimed ahead would be out of proportion
      this.#ready = [...weights].map(([group, weight]) => [group, weight * this.#unit])
      this.looked = performance.now() - start
      this.#brought = false
      this.#more = weights.size === groupsAtOnce
    }
    if (!this.#ready.length) return 0
    const [group, left] = this.#ready[0]!
    this.last = group
    return Math.min(n, left)
  }

  /** Notes how many jobs a claim of a share has brought, and returns whether another claim is worthwhile at once. */
  took(jobs: number, share: number): boolean {
    const all = jobs === share && share > 0
    if (this.groups.length === 1) return all
    this.#brought ||= jobs > 0
    this.#more ||= all
    const turn = this.#ready[0]
    // A claim passes over jobs that others are claiming, and leaves more.
    if (turn && ((turn[1] -= jobs) <= 0 || jobs === 0 || !all && this.#unit > 1)) this.#ready.shift()
    return this.#ready.length > 0 || this.#more && this.#brought
  }
}
